//! Everything that a part of the bench needs running, fresh for each part.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::{
    Outcome,
    gateway::{Audit, Gateway},
    identity,
    plan::{Plan, READY, Work},
    process::Process,
};

/// How long a child may take to say its first line, and over its deadline to say its last.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The mock upstream itself.
    Direct,
    PassThrough,
    Gateway,
}

#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub side: Side,
    pub address: SocketAddr,
    pub pid: u32,
}

/// Ends its children before their files: fields are dropped in this order.
pub struct Stand {
    targets: Vec<Target>,
    gateway: Option<Gateway>,
    _pass_through: Process,
    _upstream: Process,
    files: Scratch,
}

impl Stand {
    pub fn start(gateway: Option<&Path>) -> Outcome<Self> {
        Self::start_with(gateway, &Audit::Spool)
    }

    pub fn start_with(gateway: Option<&Path>, audit: &Audit) -> Outcome<Self> {
        let files = Scratch::new()?;
        let jwks = files.0.join("jwks.json");
        identity::issue(&jwks, &files.tokens())?;
        let upstream = Process::start("mock-upstream", &[])?;
        let direct = target(Side::Direct, &upstream)?;
        let pass_through = Process::start("pass-through", &[&direct.address.to_string()])?;
        let mut targets = vec![direct, target(Side::PassThrough, &pass_through)?];
        let gateway = gateway
            .map(|binary| Gateway::start(binary, &files.0, &jwks, direct.address, audit))
            .transpose()?;
        if let Some(Gateway { address, pid, .. }) = gateway {
            targets.push(Target { side: Side::Gateway, address, pid });
        }
        Ok(Self { targets, gateway, _pass_through: pass_through, _upstream: upstream, files })
    }

    /// The upstream itself first.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// A load generator with open and warm connections.
    pub fn load(&self, target: Target, work: Work, deadline_s: u64) -> Outcome<Load> {
        let plan = Plan { target: target.address, tokens: self.files.tokens(), work, deadline_s };
        let load = Process::start("load", &[&serde_json::to_string(&plan)?])?;
        let within = Duration::from_secs(deadline_s) + GRACE;
        match load.line(within)?.as_str() {
            READY => Ok(Load { process: load, within }),
            other => Err(format!("the load generator said {other}").into()),
        }
    }

    /// What the gateway logged, for a failure while it was driven.
    pub fn last_words(&self) -> String {
        self.gateway.as_ref().map(Gateway::last_words).unwrap_or_default()
    }
}

/// A load generator that waits for the word.
pub struct Load {
    pub process: Process,
    pub within: Duration,
}

fn target(side: Side, process: &Process) -> Outcome<Target> {
    Ok(Target { side, address: process.line(GRACE)?.parse()?, pid: process.id() })
}

/// A directory that goes away with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}-{nth}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn tokens(&self) -> PathBuf {
        self.0.join("tokens.json")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies in Cargo's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
