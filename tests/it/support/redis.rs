//! A real Redis of a test's own: started, paused, emptied and ended as the test likes.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use secrecy::SecretString;

use super::client::eventually;

const PATIENCE: Duration = Duration::from_secs(10);
/// It would show in logs and errors.
pub const PASSWORD: &str = "r3d1s-s3cr3t";

/// A server, its port and its directory; all gone when it is dropped.
pub struct RedisServer {
    child: Option<Child>,
    port: u16,
    dir: PathBuf,
    arguments: &'static [&'static str],
}

/// The installed one: `make test` sees to it.
fn binary() -> String {
    std::env::var("TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

impl RedisServer {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// One node that is a whole cluster.
    pub async fn start_cluster() -> Self {
        let server = Self::start_with(&["--cluster-enabled", "yes"]).await;
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        eventually(PATIENCE, async || {
            server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        })
        .await;
        server
    }

    async fn start_with(arguments: &'static [&'static str]) -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-redis-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        let mut server = Self { child: None, port: free_port(), dir, arguments };
        // Another test may have taken the port since: then it ends at once.
        for _ in 0..5 {
            server.spawn();
            if server.answers().await {
                return server;
            }
            server.port = free_port();
        }
        panic!("{} does not start", binary());
    }

    fn spawn(&mut self) {
        let child = Command::new(binary())
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(self.arguments)
            .args(["--save", "", "--appendonly", "no", "--requirepass", PASSWORD])
            .arg("--dir")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| {
            panic!("no {} ({error}): `make redis` installs it, or set TEST_REDIS_SERVER", binary())
        }));
    }

    /// Until it answers or has ended.
    async fn answers(&mut self) -> bool {
        let mut answers = false;
        eventually(PATIENCE, async || {
            let child = self.child.as_mut().expect("it was started");
            if child.try_wait().expect("it is our child").is_some() {
                return true;
            }
            answers = self.try_command(&["PING"]).is_some_and(|answer| answer.contains("PONG"));
            answers
        })
        .await;
        answers
    }

    pub fn url(&self) -> SecretString {
        format!("redis://:{PASSWORD}@127.0.0.1:{}/0", self.port).into()
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command and returns what comes back, as it is written on the wire.
    pub fn command(&self, words: &[&str]) -> String {
        self.try_command(words).expect("the server answers")
    }

    /// For a command that answers with a number.
    pub fn number(&self, words: &[&str]) -> i64 {
        let answer = self.command(words);
        let number = answer.trim_end().strip_prefix(':').and_then(|digits| digits.parse().ok());
        number.unwrap_or_else(|| panic!("{words:?}: {answer}"))
    }

    pub fn keys(&self) -> Vec<String> {
        let answer = self.command(&["KEYS", "*"]);
        answer.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect()
    }

    fn try_command(&self, words: &[&str]) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let mut bytes = Vec::new();
        for words in [&["AUTH", PASSWORD], words, &["QUIT"]] {
            write!(bytes, "*{}\r\n", words.len()).ok()?;
            for word in words {
                write!(bytes, "${}\r\n{word}\r\n", word.len()).ok()?;
            }
        }
        stream.write_all(&bytes).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let answer = answer.strip_prefix("+OK\r\n")?;
        Some(answer.strip_suffix("+OK\r\n").unwrap_or(answer).to_owned())
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        kill(pid, signal).expect("the process is there");
    }

    /// It keeps its connections and answers nothing.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Ends it; what it knew is lost.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again where it was, empty.
    pub async fn start_again(&mut self) {
        self.stop();
        self.spawn();
        assert!(self.answers().await, "it starts again on its port");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
        // What can't be removed is a temporary file.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
