//! A real Postgres of a test's own, with databases in it: stopped and restarted as the test likes.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, postgres::PgConnectOptions};

use super::patience::eventually;

const PATIENCE: Duration = Duration::from_secs(20);
/// It would show in logs and errors.
pub const PASSWORD: &str = "p0stgr3s-s3cr3t";

/// What it does without where it does not sync, either: many run at once.
const SMALL: [&str; 5] = ["-F", "-c", "shared_buffers=32MB", "-c", "max_wal_size=256MB"];

/// A server: one that was started in a directory of its own, gone when it is dropped, or the one of
/// `TEST_DATABASE_URL`.
pub struct PostgresServer {
    child: Option<Child>,
    directory: Option<PathBuf>,
    superuser: SecretString,
    port: u16,
    /// Does it sync what it commits, as in production?
    is_durable: bool,
}

/// The directory of `initdb` and `postgres`, as `tests/postgres` finds it.
fn binaries() -> PathBuf {
    if let Some(given) = std::env::var_os("TEST_POSTGRES_BIN") {
        return given.into();
    }
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = debian.map(|entry| entry.path().join("bin"));
    let version = |path: &PathBuf| {
        let name = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        name.and_then(|name| name.parse::<u32>().ok())
    };
    let newest = versions.filter(|path| path.join("initdb").exists()).max_by_key(version);
    newest.unwrap_or_default()
}

/// Postgres does not run as root: then its package's user does, or nobody.
fn other_user() -> Option<(u32, u32)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the users");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    find("postgres").or_else(|| find("nobody"))
}

impl PostgresServer {
    /// A server that does not sync: a test's rows need not outlive the machine.
    pub async fn start() -> Self {
        match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => {
                let options: PgConnectOptions = url.parse().expect("TEST_DATABASE_URL is a URL");
                let (port, superuser) = (options.get_port(), url.into());
                Self { child: None, directory: None, superuser, port, is_durable: true }
            }
            Err(_) => Self::start_own(false).await,
        }
    }

    /// A server of the test's own in any case, which it can stop.
    pub async fn start_own(is_durable: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("tollgate-pg-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&directory).expect("a directory for the test");
        if let Some((user, group)) = other_user() {
            chown(&directory, Some(user), Some(group)).expect("root may");
        }
        let mut server = Self {
            child: None,
            superuser: String::new().into(),
            directory: Some(directory),
            port: 0,
            is_durable,
        };
        server.initialize();
        // Another test may have taken the port since: then it ends at once.
        for _ in 0..5 {
            server.port = free_port();
            server.spawn();
            if server.answers().await {
                return server;
            }
        }
        panic!("postgres does not start: {}", server.log());
    }

    fn directory(&self) -> &Path {
        self.directory.as_deref().expect("a server of the test's own")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory().join("log")).unwrap_or_default()
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(binaries().join(name));
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        command.current_dir(self.directory()).stdin(Stdio::null());
        command
    }

    fn initialize(&self) {
        let password = self.directory().join("password");
        fs::write(&password, PASSWORD).expect("the password's file");
        let made = self
            .command("initdb")
            .args(["--pgdata", "data", "--no-sync", "--no-locale", "--encoding", "UTF8"])
            .args(["--username", "postgres", "--auth", "scram-sha-256", "--pwfile", "password"])
            .output()
            .unwrap_or_else(|error| {
                panic!("no initdb ({error}): `make postgres` sees to it, or set TEST_DATABASE_URL")
            });
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn spawn(&mut self) {
        let log = || fs::File::create(self.directory().join("log")).expect("a log");
        let socket = self.directory().display().to_string();
        let child = self
            .command("postgres")
            .args(["-D", "data", "-p", &self.port.to_string(), "-k", &socket])
            // One that is measured has what a server has by default.
            .args(if self.is_durable { [].as_slice() } else { &SMALL })
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=40"])
            .stdout(log())
            .stderr(log())
            .spawn();
        self.child = Some(child.expect("postgres is beside initdb"));
        let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", self.port);
        self.superuser = url.into();
    }

    /// Until it answers or has ended.
    async fn answers(&mut self) -> bool {
        let options = options(&self.superuser);
        let mut answers = false;
        eventually(PATIENCE, async || {
            let child = self.child.as_mut().expect("it was started");
            if child.try_wait().expect("it is our child").is_some() {
                return true;
            }
            answers = options.connect().await.is_ok();
            answers
        })
        .await;
        answers
    }

    /// A new, empty database, and a role that owns it and is not the superuser.
    pub async fn database(&self) -> Database {
        self.database_with("").await
    }

    /// As [`Self::database`], with further options of CREATE DATABASE.
    pub async fn database_with(&self, how: &str) -> Database {
        let name = format!("tollgate_{}", uuid::Uuid::new_v4().simple());
        let database = Database {
            superuser: self.superuser.clone(),
            port: self.port,
            is_left: self.directory.is_none(),
            name,
        };
        let mut superuser = options(&self.superuser).connect().await.expect("the server");
        for role in [database.owner(), database.gateway_role()] {
            run(&mut superuser, &format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")).await;
        }
        let (name, owner) = (&database.name, database.owner());
        let create = format!("CREATE DATABASE {name} OWNER {owner} TEMPLATE template0 {how}");
        run(&mut superuser, &create).await;
        database
    }

    /// From now on it speaks TLS as well, by this certificate (PEM) and key.
    pub async fn speak_tls(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.directory().join("data").join(name);
            fs::write(&path, text).expect("its file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
            if let Some((user, group)) = other_user() {
                chown(&path, Some(user), Some(group)).expect("root may");
            }
        }
        let mut superuser = options(&self.superuser).connect().await.expect("the server");
        run(&mut superuser, "ALTER SYSTEM SET ssl = on").await;
        run(&mut superuser, "SELECT pg_reload_conf()").await;
    }

    /// Connections are cut; what was committed is there afterwards. `at_once` leaves no time to
    /// write anything, as a kill -9 does.
    pub async fn stop(&mut self, at_once: bool) {
        let Some(mut child) = self.child.take() else { return };
        signal(&child, if at_once { Signal::SIGQUIT } else { Signal::SIGINT });
        eventually(PATIENCE, async || child.try_wait().expect("it is our child").is_some()).await;
    }

    pub async fn start_again(&mut self) {
        self.spawn();
        assert!(self.answers().await, "it starts again: {}", self.log());
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    // It may have ended already.
    let _ = kill(pid, signal);
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // At once, with all its processes.
            signal(&child, Signal::SIGQUIT);
            let _ = child.wait();
        }
        if let Some(directory) = &self.directory {
            // What can't be removed is a temporary file.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// A database of one test's own, and two roles: its owner, and one that may only log in.
#[derive(Debug)]
pub struct Database {
    superuser: SecretString,
    port: u16,
    /// The server goes on after the test.
    is_left: bool,
    name: String,
}

impl Database {
    fn owner(&self) -> String {
        format!("{}_owner", self.name)
    }

    pub fn gateway_role(&self) -> String {
        format!("{}_gateway", self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn owner_url(&self) -> SecretString {
        self.url(&self.owner(), self.port)
    }

    pub fn gateway_url(&self) -> SecretString {
        self.url(&self.gateway_role(), self.port)
    }

    /// As `role`, at a port that may be a proxy's.
    fn url(&self, role: &str, port: u16) -> SecretString {
        let host = options(&self.superuser).get_host().to_owned();
        format!("postgres://{role}:{PASSWORD}@{host}:{port}/{}", self.name).into()
    }

    /// A superuser's connection to this database.
    pub async fn superuser(&self) -> PgConnection {
        options(&self.superuser).database(&self.name).connect().await.expect("the database")
    }

    /// Takes it away, also from under those who are connected.
    async fn discard(&self) {
        let mut superuser = options(&self.superuser).connect().await.expect("the server");
        run(&mut superuser, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).await;
        for role in [self.owner(), self.gateway_role()] {
            run(&mut superuser, &format!("DROP ROLE IF EXISTS {role}")).await;
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.is_left {
            return;
        }
        let discarded = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let mut runtime = tokio::runtime::Builder::new_current_thread();
                    runtime.enable_all().build().expect("a runtime").block_on(self.discard());
                })
                .join()
        });
        assert!(discarded.is_ok() || std::thread::panicking(), "the database is taken away");
    }
}

fn options(url: &SecretString) -> PgConnectOptions {
    let options: PgConnectOptions = url.expose_secret().parse().expect("a URL");
    options.disable_statement_logging()
}

/// Statements of the test's own making.
pub async fn run(connection: &mut PgConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
