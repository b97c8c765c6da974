//! How long a thread that all calls are on is held at a time, while large prompts and answers go
//! through a whole gateway on that one thread.
//!
//! Another task is always ready to run there. What the thread has computed between two of its turns
//! is what others waited for, in its own processor time: what else the machine does is not in it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use criterion::Criterion;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::runtime;
use tollgate::{
    app::App,
    auth::mint::{SigningKey, TokenSpec, mint},
    config::Config,
};

/// Each is sent so often; the longest time of all is told, and the usual one.
const ROUNDS: usize = 15;
const MEGABYTE: usize = 1 << 20;

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"

[[auth.issuers]]
issuer = "https://issuer.bench"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = ""

[[providers]]
name = "mock"
kind = "openai"
base_url = ""
api_key = "sk-provider-0123456789abcdefghij"

[[models]]
name = "small"
requires = ["model:reasoning"]
routes = [{ provider = "mock", model = "small" }]
price = { input = 1.0, output = 2.0 }
max_input_tokens = 1_000_000

[[models]]
name = "large"
requires = ["model:reasoning"]
routes = [{ provider = "mock", model = "large" }]
price = { input = 1.0, output = 2.0 }

[[tiers]]
name = "pro"
usd_per_day = 1_000_000.0
[[tiers.limits]]
model = "*"
requests_per_minute = 60_000
"#;

fn prompts() -> Vec<(&'static str, Value)> {
    let asking = |content: Value| {
        json!({ "model": "small", "max_tokens": 16,
            "messages": [{ "role": "user", "content": content }] })
    };
    let fill = |part: &str, bytes: usize| Value::from(part.repeat(bytes / part.len()));
    let prose = "A gateway stands between agents and what they spend: models and tools. ";
    let code = "    let mut buckets = self.buckets.lock().await; // token: see config.token\n";
    let image =
        format!("data:image/png;base64,{}", "iVBORw0KGgoAAAANSUhEUgAA".repeat(MEGABYTE / 24));
    let nested = (0..100).fold(json!("x"), |inner, _| json!([inner]));
    let part = json!({ "type": "image_url", "image_url": { "url": image } });
    let mut deep = asking(json!("Hello"));
    deep["metadata"] = Value::from(vec![nested; MEGABYTE / 203]);
    let mut many = asking(json!("Hello"));
    many["metadata"] = Value::from(vec!["a word"; MEGABYTE / 9]);
    let mut answer = asking(json!("Hello"));
    answer["model"] = json!("large");
    vec![
        ("1 MB of prose", asking(fill(prose, MEGABYTE))),
        ("1 MB of code", asking(fill(code, MEGABYTE))),
        ("2 MB of backslashes", asking(fill("\\", MEGABYTE))),
        ("1 MB, nested 100 deep", deep),
        ("1 MB of short strings", many),
        ("an image of 1 MB", asking(json!([part]))),
        ("an answer of 1 MB", answer),
    ]
}

/// What a thread has computed so far, in nanoseconds.
fn computed() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock is there");
    u64::try_from(Duration::from(time).as_nanos()).expect("it fits")
}

async fn beat(longest: Arc<AtomicU64>) {
    let mut before = computed();
    loop {
        tokio::task::yield_now().await;
        let now = computed();
        longest.fetch_max(now - before, Ordering::Relaxed);
        before = now;
    }
}

/// Reads a request or an answer to its end; its body.
fn read(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn write(stream: &TcpStream, head: &str, body: &[u8]) {
    let mut stream = stream;
    let head = format!(
        "{head}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("it is read");
}

/// A provider whose model `large` has much to say.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
                while let Some(body) = read(&mut reader) {
                    let is_large = body.windows(15).any(|part| part == br#""model":"large""#);
                    let said =
                        if is_large { "a word, ".repeat(MEGABYTE / 8) } else { "well".into() };
                    let answer = json!({ "id": "c", "object": "chat.completion", "choices": [{
                        "index": 0, "finish_reason": "stop",
                        "message": { "role": "assistant", "content": said } }],
                        "usage": { "prompt_tokens": 9, "completion_tokens": 2 } });
                    write(&stream, "HTTP/1.1 200 OK", answer.to_string().as_bytes());
                }
            });
        }
    });
    address
}

fn call(address: SocketAddr, token: &str, body: &[u8]) {
    let stream = TcpStream::connect(address).expect("it listens");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}"
    );
    write(&stream, &head, body);
    let answer = read(&mut BufReader::new(stream)).expect("an answer");
    let answer: Value = serde_json::from_slice(&answer).expect("it is JSON");
    assert_eq!(answer["id"], "c", "{answer}");
}

/// Prints a table. There is nothing in it for criterion to compare.
#[expect(clippy::print_stdout, reason = "a benchmark's figures are its output")]
pub fn hold(_: &mut Criterion) {
    let dir = std::env::temp_dir().join(format!("tollgate-hold-{}", uuid::Uuid::new_v4()));
    let key = SigningKey::generate_file(&dir.join("key.pem")).expect("a key is made");
    fs::write(dir.join("jwks.json"), key.public_jwks().to_string()).expect("it is written");
    let mut config: Config = toml::from_str(CONFIG).expect("the configuration is right");
    config.audit.path = dir.join("audit.db");
    config.auth.issuers[0].jwks_file = Some(dir.join("jwks.json"));
    config.providers[0].base_url = Some(format!("http://{}", upstream()));
    let spec = TokenSpec {
        issuer: "https://issuer.bench".to_owned(),
        audience: vec!["tollgate".to_owned()],
        subject: "bench".to_owned(),
        tier: Some("pro".to_owned()),
        capabilities: vec!["model:reasoning".to_owned()],
        ttl: Duration::from_hours(1),
        ..TokenSpec::default()
    };
    let token = mint(&key, &spec).expect("a token is signed");
    let longest = Arc::new(AtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let gateway = thread::spawn({
        let longest = Arc::clone(&longest);
        move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async {
                let app = App::start(&config).await.expect("the gateway starts");
                tokio::spawn(beat(longest));
                tell.send(app.address()).expect("someone waits for it");
                let _ = stopped.await;
                app.shutdown().await;
            });
        }
    });
    let address = told.recv().expect("the gateway starts");
    println!("\nhow long one thread is held at a time, in ms: the longest of {ROUNDS}, the usual");
    for (name, body) in prompts() {
        let body = body.to_string().into_bytes();
        call(address, &token, &body);
        let mut held: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                longest.store(0, Ordering::Relaxed);
                call(address, &token, &body);
                longest.load(Ordering::Relaxed)
            })
            .collect();
        held.sort_unstable();
        let shown = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64() * 1_000.0;
        let (most, usual) = (shown(held[ROUNDS - 1]), shown(held[ROUNDS / 2]));
        println!("hold/{name:<24} {most:>7.3} {usual:>7.3}");
    }
    let _ = stop.send(());
    gateway.join().expect("the gateway ends well");
    fs::remove_dir_all(&dir).expect("nothing of it is needed any more");
}
