//! A child process: this program in another role.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use super::Outcome;

/// How long a child may take to end by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends with this value: by closed standard input at first, which also tells a child whose parent
/// was killed.
pub struct Process {
    role: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(role: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a child without standard output")?;
        Ok(Self { role: role.to_owned(), child, stdin, lines: lines_of(stdout) })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's next line.
    pub fn line(&self, within: Duration) -> Outcome<String> {
        self.lines.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("`{}` says nothing", self.role).into(),
            RecvTimeoutError::Disconnected => format!("`{}` failed", self.role).into(),
        })
    }

    pub fn send(&mut self, line: &str) -> Outcome<()> {
        let stdin = self.stdin.as_mut().ok_or("a child without standard input")?;
        Ok(writeln!(stdin, "{line}")?)
    }
}

/// A thread reads, so that waiting for a line can have an end.
fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = sync_channel(16);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            pause(Duration::from_millis(10));
        }
        // It may have ended in the meantime, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets time pass, in a program whose main thread has nothing else to do.
pub fn pause(duration: Duration) {
    let until = Instant::now() + duration;
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
}
