//! The gateway under test: its binary, its configuration, and its start.

use std::{
    env, fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    Outcome,
    identity::{AUDIENCE, CAPABILITY, ISSUER, TIER},
    payload::Answer,
    process::{Process, pause},
};

const START: Duration = Duration::from_secs(20);

/// `None`: there is nothing to measure beside the pass-through.
pub fn binary(target: &Path) -> Outcome<Option<PathBuf>> {
    if let Some(named) = env::var_os("TOLLGATE_BIN").map(PathBuf::from) {
        if !named.is_file() {
            return Err(format!("TOLLGATE_BIN: there is no file {}", named.display()).into());
        }
        return Ok(Some(named));
    }
    let built = target.join("release/tollgate");
    Ok(built.is_file().then_some(built))
}

/// Where its audit entries go.
pub enum Audit {
    /// Written before egress, synced each 50 ms.
    Spool,
    /// Synced before egress.
    Strict,
    /// By the spool, to a database that is migrated.
    Postgres { url: SecretString },
}

impl Audit {
    fn settings(&self) -> String {
        match self {
            Self::Spool => "store = \"sqlite\"".to_owned(),
            Self::Strict => "store = \"sqlite\"\ndurability = \"strict\"".to_owned(),
            Self::Postgres { url } => {
                let url = toml::Value::String(url.expose_secret().to_owned());
                format!("store = \"postgres\"\nurl = {url}")
            }
        }
    }
}

/// A running gateway. Its standard error goes to a file beside its configuration.
pub struct Gateway {
    pub address: SocketAddr,
    pub pid: u32,
    log: PathBuf,
    _guard: Process,
}

impl Gateway {
    pub fn start(
        binary: &Path,
        files: &Path,
        jwks: &Path,
        upstream: SocketAddr,
        audit: &Audit,
    ) -> Outcome<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let (config, log) = (files.join("tollgate.toml"), files.join("tollgate.log"));
        fs::write(&config, configuration([address, admin, upstream], files, jwks, audit))?;
        let paths = [binary, &config, &log].map(|path| path.to_string_lossy());
        let guard = Process::start("guard", &[&paths[0], &paths[1], &paths[2]])?;
        let pid = guard.line(START)?.parse()?;
        let gateway = Self { address, pid, log, _guard: guard };
        gateway.wait_until_ready(admin)?;
        Ok(gateway)
    }

    /// The end of what it logged, for a message about what went wrong.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn wait_until_ready(&self, admin: SocketAddr) -> Outcome<()> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if is_ready(admin).unwrap_or(false) {
                return Ok(());
            }
            pause(Duration::from_millis(50));
        }
        Err(format!("the gateway is not ready after {START:?}; it logged:\n{}", self.last_words())
            .into())
    }
}

fn is_ready(admin: SocketAddr) -> io::Result<bool> {
    let patience = Duration::from_secs(1);
    let mut socket = TcpStream::connect_timeout(&admin, patience)?;
    socket.set_read_timeout(Some(patience))?;
    write!(socket, "GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
    let mut status = [0; 13];
    socket.read_exact(&mut status)?;
    Ok(status.starts_with(b"HTTP/1.1 200 "))
}

/// Free a moment ago, which is as good as it gets for a program that is told its port.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Everything is on, budgets of tokens and money too; they are counted, and far from being reached.
fn configuration(
    [address, admin, upstream]: [SocketAddr; 3],
    files: &Path,
    jwks: &Path,
    audit: &Audit,
) -> String {
    let models: String = Answer::ALL.iter().map(|answer| model(answer.model())).collect();
    let (database, jwks) = (quoted(&files.join("audit.db")), quoted(jwks));
    let audit = audit.settings();
    format!(
        r#"
[server]
listen = "{address}"
admin_listen = "{admin}"

[admission]
max_connections = 16384
max_connections_per_address = 16384
max_in_flight = 16384
address_requests_per_second = 1_000_000
address_burst = 1_000_000
caller_requests_per_second = 1_000_000
caller_burst = 1_000_000

[[auth.issuers]]
issuer = "{ISSUER}"
audience = ["{AUDIENCE}"]
algorithms = ["EdDSA"]
jwks_file = {jwks}

[[providers]]
name = "mock"
kind = "openai"
base_url = "http://{upstream}/v1"
api_key = "sk-bench-upstream"
idle_timeout_ms = 300_000
{models}
[[tiers]]
name = "{TIER}"
usd_per_month = 1_000_000
[[tiers.limits]]
model = "*"
requests_per_minute = 10_000_000
tokens_per_minute = 60_000_000
tokens_burst = 1_000_000_000
concurrent = 100_000

[audit]
path = {database}
{audit}

[telemetry]
log = "warn"
"#
    )
}

/// As a TOML string.
fn quoted(path: &Path) -> toml::Value {
    toml::Value::String(path.to_string_lossy().into_owned())
}

fn model(name: &str) -> String {
    format!(
        r#"
[[models]]
name = "{name}"
requires = ["{CAPABILITY}"]
routes = [{{ provider = "mock", model = "{name}" }}]
price = {{ input = 0.35, cached_input = 0.10, output = 0.75 }}
"#
    )
}

/// The role that keeps a gateway: says its process id, and ends it when standard input closes,
/// which a killed bench could not.
pub fn guard(arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let [binary, config, log] = &arguments.collect::<Vec<_>>()[..] else {
        return Err("guard BINARY CONFIG LOG".into());
    };
    let mut gateway = Command::new(binary)
        .args(["serve", "--config", config])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(log)?)
        .spawn()?;
    println!("{}", gateway.id());
    // However the reading ends, the gateway must.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    gateway.kill()?;
    gateway.wait()?;
    Ok(())
}
