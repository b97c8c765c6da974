//! The binary itself, as a person at a shell meets it.

mod audit;
mod check;
mod dev;
mod help;
mod provider;
mod redact;
mod serve;
mod token;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::support::client::Client;

/// How long a command may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory for a test to run the binary in.
struct Shell {
    dir: PathBuf,
    env: Vec<(&'static str, String)>,
}

impl Shell {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-cli-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&dir).unwrap();
        Self { dir, env: Vec::new() }
    }

    fn with_env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The command, with no variable of the test's own environment.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(args).current_dir(&self.dir).env_clear().envs(self.env.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().expect("the binary runs");
        Ran::new(args, &output)
    }

    /// Starts a command that goes on, such as `dev`.
    fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().expect("the binary runs"))
    }

    /// As [`Shell::start`], from a shell that has run `before`: to set its limits.
    fn start_limited(&self, before: &str, args: &[&str]) -> Running {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{before} && exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_tollgate")).args(args).current_dir(&self.dir);
        command.env_clear().envs(self.env.iter().cloned()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().expect("a shell runs"))
    }

    /// `tollgate dev` on ports of its own, once it listens.
    fn dev(&self, args: &[&str]) -> Dev {
        let ports = ["dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let mut running = self.start(&[&ports, args].concat());
        let welcome = running.out.until("The API, to try in a browser").to_vec();
        Dev { running, welcome }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // What can't be removed is in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a command printed and how it ended.
#[derive(Debug)]
struct Ran {
    command: String,
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn new(args: &[&str], output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
        Self {
            command: args.join(" "),
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// What it printed to stdout, if it went well.
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.err, "", "{}: something to complain of", self.command);
        self.out
    }

    /// What it printed to stderr, if it failed with this code and nothing on stdout.
    fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{}: stdout is for what was asked for", self.command);
        assert!(!self.err.contains("panicked"), "{self:?}");
        self.err
    }
}

/// A command that goes on, killed when dropped.
struct Running {
    child: Child,
    out: Lines,
    err: Lines,
}

impl Running {
    fn new(mut child: Child) -> Self {
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, out: Lines::of(out), err: Lines::of(err) }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "no process {pid}");
    }

    /// Ends it with SIGTERM, and what it printed.
    fn stop(self) -> Ran {
        self.signal("TERM");
        self.wait()
    }

    fn wait(mut self) -> Ran {
        let (out, err) = (self.out.drain(), self.err.drain());
        let code = self.child.wait().expect("it is ours").code();
        Ran { command: "running".to_owned(), code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command prints, read all the time so that it never waits for us.
struct Lines {
    receiver: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { receiver, seen: Vec::new() }
    }

    /// Waits for a line that contains `text`; all lines so far.
    fn until(&mut self, text: &str) -> &[String] {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.iter().any(|line| line.contains(text)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(why) => panic!("no {text:?}: {why}, after {:#?}", self.seen),
            }
        }
        &self.seen
    }

    /// All lines, once the command has closed its end.
    fn drain(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.seen.join("\n"),
                Err(why) => panic!("it does not end: {why}, after {:#?}", self.seen),
            }
        }
    }
}

/// A dev gateway and what it said at its start.
struct Dev {
    running: Running,
    welcome: Vec<String>,
}

impl Dev {
    fn address(&self) -> SocketAddr {
        let after = self.welcome[0].split_once("http://").expect("where it listens").1;
        let end = after.find(". ").expect("the sentence's end");
        after[..end].parse().expect("an address")
    }

    fn token(&self) -> &str {
        &self.welcome[2]
    }

    fn client(&self, token: &str) -> Client {
        Client::new(self.address()).with_token(token)
    }

    /// Ends it, which has to go well.
    fn stop(self) -> Ran {
        let ran = self.running.stop();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
}
