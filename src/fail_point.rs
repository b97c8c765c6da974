//! Where tests kill the gateway.
//!
//! A build with debug assertions, which is what tests run, looks once at `TOLLGATE_FAIL_POINT`
//! (`mid_ship:3`: at the third time) and ends itself there with a SIGKILL. In a release build
//! [`FailPoint::hit`] is empty: nothing is looked at and nothing can be set. That is less than the
//! `fail` crate would bring (a registry, a lock and a format of its own), and no feature has to be
//! built for it.

/// A place on a call's way, on its record's way to the store, or on the way of a lost call's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailPoint {
    /// A call is let in, and nothing is written of it.
    BeforeIntent,
    /// The intent is in the spool, and its call has not heard of it.
    AfterWrite,
    AfterIntent,
    AfterReserve,
    /// The ledger knows that the call leaves.
    BeforeEgress,
    /// The provider has answered.
    AfterEgress,
    MidStream,
    BeforeSettle,
    /// The ledger is settled, and the terminal row not written.
    AfterSettle,
    /// The terminal row is taken.
    AfterEnd,
    BeforeShip,
    /// The store has a batch, and the spool does not know.
    MidShip,
    AfterAck,
    /// What a lost call had reserved is ended, and its end not written.
    MidSweep,
    /// Its end is taken, and not in the store.
    AfterSweep,
}

impl FailPoint {
    pub const ALL: [Self; 15] = [
        Self::BeforeIntent,
        Self::AfterWrite,
        Self::AfterIntent,
        Self::AfterReserve,
        Self::BeforeEgress,
        Self::AfterEgress,
        Self::MidStream,
        Self::BeforeSettle,
        Self::AfterSettle,
        Self::AfterEnd,
        Self::BeforeShip,
        Self::MidShip,
        Self::AfterAck,
        Self::MidSweep,
        Self::AfterSweep,
    ];

    /// As `TOLLGATE_FAIL_POINT` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeIntent => "before_intent",
            Self::AfterWrite => "after_write",
            Self::AfterIntent => "after_intent",
            Self::AfterReserve => "after_reserve",
            Self::BeforeEgress => "before_egress",
            Self::AfterEgress => "after_egress",
            Self::MidStream => "mid_stream",
            Self::BeforeSettle => "before_settle",
            Self::AfterSettle => "after_settle",
            Self::AfterEnd => "after_end",
            Self::BeforeShip => "before_ship",
            Self::MidShip => "mid_ship",
            Self::AfterAck => "after_ack",
            Self::MidSweep => "mid_sweep",
            Self::AfterSweep => "after_sweep",
        }
    }

    /// Ends the process, if this is where it is to end.
    #[inline]
    pub fn hit(self) {
        #[cfg(debug_assertions)]
        armed::hit(self);
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::{
        io::Write as _,
        sync::{
            LazyLock,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    };

    use rustix::process::{Signal, getpid, kill_process};

    use super::FailPoint;

    /// Where, and how many times more it is passed.
    static ARMED: LazyLock<Option<(FailPoint, AtomicU64)>> = LazyLock::new(|| {
        let armed = std::env::var("TOLLGATE_FAIL_POINT").ok()?;
        let (name, times) = armed.split_once(':').unwrap_or((&armed, "1"));
        let point = FailPoint::ALL.into_iter().find(|point| point.as_str() == name)?;
        Some((point, AtomicU64::new(times.parse().ok()?)))
    });

    pub(super) fn hit(point: FailPoint) {
        let Some((armed, times)) = &*ARMED else { return };
        if *armed != point || times.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        // Straight to the file: what a writer of its own holds is lost with the process.
        let said = format!("fail point {}\n", point.as_str());
        _ = std::io::stderr().write_all(said.as_bytes());
        _ = kill_process(getpid(), Signal::KILL);
        // The signal may take effect a moment later, and nothing must happen until then.
        loop {
            thread::park();
        }
    }
}
