//! The real binary as a child process.

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{
        Audit, StoredEntry,
        spool::{DirectoryDisk, SEGMENT_BYTES, Spool, SpoolSettings},
    },
    redact::LiveRedactor,
    storage::sqlite::{self, AuditReader},
};

use super::client::{Client, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway in a process and a directory of its own, both gone when it is dropped.
pub struct Process {
    child: Child,
    dir: PathBuf,
    arguments: Vec<String>,
}

impl Process {
    /// `arguments` are given the directory, in which files can be put.
    pub async fn start(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-bin-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        let arguments = arguments(&dir);
        let process = Self { child: spawn(&dir, &arguments, None), dir, arguments };
        process.until_logged("listening").await;
        process
    }

    /// Starts it once more, after its end, on new ports and with new logs.
    pub async fn restart(&mut self) {
        self.child = spawn(&self.dir, &self.arguments, None);
        self.until_logged("listening").await;
    }

    /// The same, and it is to end at a fail point (`mid_ship:3`). False if it did so before it
    /// listened.
    pub async fn restart_armed(&mut self, fail_point: &str) -> bool {
        self.child = spawn(&self.dir, &self.arguments, Some(fail_point));
        let mut has_ended = false;
        eventually(PATIENCE, async || {
            has_ended = self.child.try_wait().expect("it is our child").is_some();
            has_ended || self.log().contains("listening")
        })
        .await;
        !has_ended
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// `tollgate dev` on free ports, and the token that it prints.
    pub async fn dev() -> (Self, String) {
        let process = Self::start(|dir| {
            let data = dir.join("data").display().to_string();
            let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
            let words = ["dev", "--data", &data].into_iter().chain(ports);
            words.map(str::to_owned).collect()
        })
        .await;
        let token = process.token_once().await;
        (process, token)
    }

    /// The token that dev mode prints.
    pub async fn token_once(&self) -> String {
        eventually(PATIENCE, async || self.token().is_some()).await;
        self.token().expect("a token")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).expect("the log")
    }

    pub async fn until_logged(&self, text: &str) {
        eventually(PATIENCE, async || self.log().contains(text)).await;
    }

    /// Where it listens, as its log says.
    pub fn address(&self) -> SocketAddr {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("listening")).expect("it listens");
        let at = line.find("127.0.0.1:").expect("an address");
        let end = line[at + 10..].find(|c: char| !c.is_ascii_digit()).expect("an end");
        line[at..at + 10 + end].parse().expect("an address")
    }

    /// The one word of its kind that dev mode prints.
    fn token(&self) -> Option<String> {
        let out = std::fs::read_to_string(self.dir.join("out")).ok()?;
        // Written in one piece, and its last line begins so.
        out.contains("\nThe API").then_some(())?;
        out.lines().find(|line| line.starts_with("eyJ")).map(str::to_owned)
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, signal).expect("the process is there");
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(PATIENCE, async || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        })
        .await;
        status.expect("it has ended")
    }

    /// Where its health and its metrics are.
    fn admin_address(&self) -> SocketAddr {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("listening")).expect("it listens");
        let (_, rest) = line.split_once("admin_address").expect("an admin address");
        let rest = &rest[rest.find("127.0.0.1:").expect("an address")..];
        let end = rest[10..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| 10 + end);
        rest[..end].parse().expect("an address")
    }

    /// Waits until all that it has recorded is in its database.
    pub async fn until_shipped(&self) {
        let client = Client::new(self.admin_address());
        eventually(PATIENCE, async || {
            let metrics = client.get("/metrics").send().await.text().await;
            let is_none = |name| metrics.contains(&format!("\ntollgate_audit_{name}_entries 0\n"));
            is_none("unshipped") && is_none("unwritten")
        })
        .await;
    }

    /// Ships what it left in its spool when it was killed, as its next start would.
    pub async fn ship_spool(&self, database: &str) {
        let database = self.dir.join(database);
        let directory = database.with_file_name("spool");
        let settings =
            SpoolSettings { limit_bytes: 1 << 30, segment_bytes: SEGMENT_BYTES, is_strict: false };
        let disk = DirectoryDisk::open(&directory).expect("its lock went with it");
        let spool = Spool::open(Arc::new(disk), settings).expect("a spool");
        let sink = sqlite::open(&database).await.expect("the database");
        let (redactor, tasks) = (LiveRedactor::default(), TaskTracker::new());
        let audit = Audit::start(spool, Arc::new(sink), redactor, &tasks).expect("a thread");
        audit.shutdown(PATIENCE).await.expect("nothing is written");
        assert_eq!(audit.status().unshipped, 0);
    }

    pub async fn audit_rows(&self, database: &str) -> Vec<StoredEntry> {
        let reader = AuditReader::open(&self.dir.join(database)).await;
        reader.expect("the database").after(0).await.expect("rows")
    }
}

fn spawn(dir: &Path, arguments: &[String], fail_point: Option<&str>) -> Child {
    let file = |name: &str| Stdio::from(File::create(dir.join(name)).expect("a file"));
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .envs(fail_point.map(|point| ("TOLLGATE_FAIL_POINT", point)))
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("log"))
        .spawn()
        .expect("the binary runs")
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, and what can't be removed is a temporary file.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
