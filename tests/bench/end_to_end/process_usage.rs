//! What another process used, as Linux counts it.

use std::{fs, time::Duration};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Outcome;

/// Descriptors that the held streams take at most, in the process that has most: two a stream.
const OPEN_FILES: u64 = 65_536;

/// CPU time since the process began, user and system, by its CPU clock (`clock_getcpuclockid`).
///
/// That clock counts nanoseconds and keeps those of threads that have ended: the ticks of
/// `/proc/PID/stat` are 10 ms long, and the sum over `/proc/PID/task/*/schedstat` forgets the
/// threads of a pool that shrank.
#[cfg(target_os = "linux")]
pub fn cpu_time(pid: u32) -> Outcome<Duration> {
    use nix::{time::ClockId, unistd::Pid};

    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into()?))?;
    Ok(clock.now()?.into())
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_time(_pid: u32) -> Outcome<Duration> {
    Err("only Linux tells what another process used".into())
}

/// Resident memory in bytes; `smaps_rollup` walks the page tables, where `status` may lag behind.
pub fn resident_bytes(pid: u32) -> Outcome<u64> {
    let usage = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kibibytes = usage
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .ok_or("no Rss in smaps_rollup")?;
    Ok(kibibytes.parse::<u64>()? * 1_024)
}

/// As many descriptors as are allowed; the children get the same.
pub fn raise_open_files() -> Outcome<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = OPEN_FILES.min(hard);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(())
}
