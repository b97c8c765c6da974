//! A secret is nowhere but where it came from: not with the provider, not with the client, not in
//! the audit trail, the log or the spans. Each is searched as the bytes that it is.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use fake_opentelemetry_collector::FakeCollectorServer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tollgate::{
    config::{Config, LogFormat, RequestRedaction, TelemetryConfig},
    telemetry::Telemetry,
};
use tracing::subscriber::DefaultGuard;

use super::seen::{PATH, impatient_in_the_middle, read};
use crate::{
    support::{
        app::{TestApp, chat},
        client::Call,
        leak::{Planted, Tap, files_of, spelled},
        upstream::{Script, Step, openai},
    },
    telemetry::Log,
};

/// How often what the collector got is taken from it.
const EMPTYING: Duration = Duration::from_millis(50);

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A gateway all of whose words are kept. It runs on the test's own thread.
struct Watched {
    app: TestApp,
    log: Log,
    telemetry: Telemetry,
    tap: Tap,
    _collector: AbortOnDrop,
    _default: DefaultGuard,
    planted: Planted,
    /// What clients got, heads and all.
    answers: Vec<u8>,
}

impl Watched {
    async fn start(format: LogFormat, change: impl FnOnce(&mut Config)) -> Self {
        let mut collector = FakeCollectorServer::start().await.unwrap();
        let tap = Tap::start(&collector.endpoint()).await;
        // It has room for some spans only, and takes no more until they are asked for.
        let emptying = tokio::spawn(async move {
            loop {
                collector.exported_spans(usize::MAX, EMPTYING).await;
            }
        });
        let log = Log::default();
        let config = TelemetryConfig {
            // The most that there is. Not what the collector's and the tests' own clients say.
            log: "trace,h2=off,hyper=off,hyper_util=off,tonic=off,tower=off".to_owned(),
            log_format: format,
            otlp_endpoint: Some(tap.endpoint.clone()),
            ..TelemetryConfig::default()
        };
        let (telemetry, dispatch) = Telemetry::build(&config, log.clone(), true).unwrap();
        let default = tracing::dispatcher::set_default(&dispatch);
        let app = TestApp::with_redactor(change, telemetry.redactor().clone()).await;
        Self {
            app,
            log,
            telemetry,
            tap,
            _collector: AbortOnDrop(emptying),
            _default: default,
            planted: Planted::default(),
            answers: Vec::new(),
        }
    }

    fn secret(&self, place: &str) -> String {
        self.planted.at(place)
    }

    /// Makes a call and keeps its answer, which must not be one of these secrets either.
    async fn call(&mut self, call: Call) -> (u16, String) {
        let answer = read(call).await;
        self.answers.extend_from_slice(format!("{:?}\n", answer.headers).as_bytes());
        self.answers.extend_from_slice(&answer.body);
        self.answers.push(b'\n');
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Stops it all and looks everywhere.
    async fn assert_nothing_leaked(mut self) {
        self.app.until_idle().await;
        let received: Vec<u8> = self
            .app
            .upstream
            .requests()
            .iter()
            .flat_map(|one| format!("{one:?}").into_bytes())
            .collect();
        let directory = self.app.config.audit.path.parent().unwrap().to_owned();
        let files_of_a_running_one = files_of(&directory);
        self.app.drain().await;
        let files = files_of(&directory);
        self.telemetry.shutdown().await;
        let (spans, log) = (self.tap.sent(), self.log.text().into_bytes());
        let planted = &self.planted;
        assert!(planted.count() > 0);
        for (what, bytes) in [
            ("the provider", &received),
            ("the client", &self.answers),
            ("the running trail", &files_of_a_running_one),
            ("the trail", &files),
            ("the log", &log),
            ("the spans", &spans),
        ] {
            assert!(!bytes.is_empty() || what == "the provider", "{what}: nothing was looked at");
            planted.assert_not_in(what, bytes);
        }
        let found =
            |bytes: &[u8], text: &str| memchr::memmem::find(bytes, text.as_bytes()).is_some();
        // While a store is closed its log goes into its file: it may be read in neither then.
        let rows = &files_of_a_running_one;
        assert!(found(rows, "create_") || found(rows, "get_model"), "no rows");
        assert!(found(&spans, "gen_ai") || found(&spans, "url.path"), "no spans");
    }
}

/// A request with a secret in every place that there is.
fn request(planted: &Planted, stream: bool) -> String {
    let at = |place: &str| planted.at(&format!("{place}, stream {stream}"));
    let escaped = spelled(&at("escapes"), |byte| format!("\\u{byte:04x}"));
    let arguments = json!({ "deep": json!({ "token": at("json in json") }).to_string() });
    let mut body = json!({
        "model": "m", "stream": stream,
        "user": at("user"),
        "metadata": { at("a name"): at("metadata") },
        "x_unknown": [{ "y": at("an unknown member") }],
        "stop": [at("stop")],
        "messages": [
            { "role": "system", "content": format!("line\n{}", at("system")) },
            { "role": "user", "name": at("the name of a user"), "content": [
                { "type": "text", "text": format!("curl -H 'Authorization: Bearer {}'", at("content part")) },
                { "type": "text", "text": STANDARD.encode(at("base64")) },
                { "type": "text", "text": format!("https://h/?q={}", at("percent").replace('_', "%5F")) },
                { "type": "text", "text": at("zero width").replacen("p_", "p\u{200B}_", 1) },
            ] },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": at("the id of a call"), "type": "function",
                "function": { "name": "f", "arguments": arguments.to_string() } }] },
            { "role": "tool", "tool_call_id": "c", "content": at("tool result") },
        ],
        "tools": [{ "type": "function", "function": { "name": "f", "description": at("tool description"),
            "parameters": { "type": "object", "properties": { "a": { "default": at("tool schema") } } } } }],
    });
    body["messages"][0]["escaped"] = Value::from("ESCAPED");
    body.to_string().replace("ESCAPED", &escaped)
}

/// A streamed answer with secrets in each field, cut every so many characters.
fn answer(planted: &Planted, every: usize) -> Script {
    let at = |place: &str| format!("see {} there", planted.at(&format!("answer: {place}")));
    let pieces = |text: String| -> Vec<String> {
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(every).map(|piece| piece.iter().collect()).collect()
    };
    let mut events: Vec<Bytes> = vec![openai::role()];
    events
        .extend(pieces(at("reasoning_content")).iter().map(|text| openai::reasoning_content(text)));
    events.extend(pieces(at("reasoning")).iter().map(|text| openai::reasoning(text)));
    events.extend(pieces(at("content")).iter().map(|text| openai::text(text)));
    events.extend(pieces(at("refusal")).iter().map(|text| openai::refusal(text)));
    events.extend(pieces(at("another choice")).iter().map(|text| openai::text_of(1, text)));
    events.push(openai::tool_call(0, "call_mock", "f"));
    let arguments = json!({ "a": at("tool arguments") }).to_string();
    events.extend(pieces(arguments).iter().map(|text| openai::tool_arguments(0, text)));
    events.extend([openai::finish("stop"), openai::finish_of(1, "stop")]);
    openai::stream(events)
}

#[tokio::test]
async fn of_a_request_no_secret_is_told_or_written_down() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let mut watched = Watched::start(format, |_| {}).await;
        for stream in [false, true] {
            let client = watched.app.alice();
            for path in [PATH, "/v1/streams"] {
                let body = request(&watched.planted, stream);
                let call = client
                    .post(&format!("{path}?key={}", watched.secret("query")))
                    .header("x-request-id", &watched.secret("x-request-id"))
                    .header("traceparent", &watched.secret("traceparent"))
                    .header("tracestate", &format!("a={}", watched.secret("tracestate")))
                    .header("user-agent", &watched.secret("user-agent"))
                    .header("x-other", &watched.secret("another header"))
                    .header("x-forwarded-for", &watched.secret("x-forwarded-for"))
                    .header("content-type", "application/json")
                    .body(body);
                let (status, text) = watched.call(call).await;
                assert!(status < 300, "{status} {text}");
            }
        }
        watched.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn of_what_is_refused_no_secret_is_told_or_written_down() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let block = |config: &mut Config| config.redaction.requests = RequestRedaction::Block;
        let mut watched = Watched::start(format, block).await;
        let (alice, stranger) = (watched.app.alice(), watched.app.stranger());
        let secret = |place: &str| watched.planted.at(place);
        let model = |name: &str| json!({ "model": name, "messages": [] });
        let encoded = spelled(&secret("percent path"), |byte| format!("%{byte:02x}"));
        let calls = vec![
            (
                400,
                alice
                    .post(PATH)
                    .header("content-type", "application/json")
                    .body(request(&watched.planted, false)),
            ),
            (404, alice.post(PATH).json(&model(&secret("a model")))),
            (404, alice.post(PATH).json(&model(&format!("password={}", secret("a model's name"))))),
            (404, alice.get(&format!("/v1/models/{}", secret("a model's path")))),
            (404, alice.get(&format!("/{}", secret("a path")))),
            (404, alice.get(&format!("/{encoded}"))),
            (404, alice.get(&format!("/v1/streams/{}", secret("a stream's id")))),
            (
                400,
                alice
                    .post(PATH)
                    .json(&json!({ secret("a name twice"): 1, "model": secret("no messages") })),
            ),
            (400, alice.post(PATH).json(&json!([secret("no object")]))),
            (
                400,
                alice.post(PATH).header("content-type", "application/json").body(secret("no JSON")),
            ),
            (
                400,
                alice.post(PATH).header("content-type", "application/json").body(format!(
                    "{{\"{0}\":1,\"{0}\":2,\"model\":\"m\",\"model\":\"m\"}}",
                    secret("twice")
                )),
            ),
            (415, alice.post(PATH).header("content-type", &secret("content-type")).body("{}")),
            (401, stranger.get("/v1/models").header("authorization", &secret("authorization"))),
            (
                401,
                stranger
                    .get("/v1/models")
                    .header("authorization", &format!("Bearer {}", secret("a token"))),
            ),
            (400, alice.get("/v1/streams/x").header("last-event-id", &secret("last-event-id"))),
            (405, alice.delete(&format!("{PATH}?{}", secret("a query")))),
        ];
        for (expected, call) in calls {
            let (status, text) = watched.call(call).await;
            assert!(
                status == expected || (400..=404).contains(&status),
                "{expected} {status} {text}"
            );
        }
        watched.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn of_an_answer_no_secret_is_told_or_written_down() {
    let mut watched = Watched::start(LogFormat::Json, impatient_in_the_middle).await;
    let client = watched.app.alice();
    for every in [1, 3, 7, 1_000] {
        for path in [PATH, "/v1/streams"] {
            watched.app.upstream.enqueue(answer(&watched.planted, every));
            let (status, text) = watched.call(client.post(path).json(&chat(true))).await;
            assert_eq!(status, 200);
            let count = text.matches("[REDACTED:").count();
            assert!(count >= 4 || path != PATH, "{every}: {text}");
        }
    }
    // Broken off behind a secret whose end is still to be seen.
    for path in [PATH, "/v1/streams"] {
        for end in [Step::Close, Step::Stall] {
            let text = format!("see {}", watched.secret("a cut answer"));
            let pieces: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
            let script = openai::text_stream(pieces.clone()).only(pieces.len() + 1).then(end);
            watched.app.upstream.enqueue(script);
            watched.call(client.post(path).json(&chat(true))).await;
        }
    }
    watched.assert_nothing_leaked().await;
}

#[tokio::test]
async fn of_a_providers_errors_no_secret_is_told_or_written_down() {
    let mut watched = Watched::start(LogFormat::Json, |_| {}).await;
    let client = watched.app.alice();
    let at = |place: &str| watched.planted.at(&format!("error: {place}"));
    let error = |text: &str| json!({ "error": { "message": text, "type": text, "param": text, "code": text } });
    let scripts = vec![
        openai::error(400, "t", Some("c"), &format!("no such key: {}", at("body"))),
        openai::error(500, "t", Some("c"), &format!("no such key: {}", at("body of a 500"))),
        Script::body(400, "text/plain", at("plain text")),
        Script::body(400, "application/json", error(&at("each member")).to_string()),
        openai::server_error().header("retry-after", &at("retry-after")),
        openai::server_error().header("x-request-id", &at("x-request-id")),
        openai::completion("x").header("x-echo", &at("header")),
        openai::completion(&format!("the key is {}", at("whole answer"))),
        Script::raw(format!("HTTP/1.1 500 {}\r\ncontent-length: 0\r\n\r\n", at("status text"))),
        Script::raw(format!("HTTP/1.1 200 {}\r\n\u{7F}: x\r\n\r\n", at("bad head"))),
        Script::events([openai::text("a"), openai::event(&error(&at("error event")).to_string())]),
        Script::events([openai::text("a"), openai::event(&at("no JSON"))]),
        Script::events([
            openai::text("a"),
            openai::event(&format!("{{\"choices\":\"{}\"}}", at("no choices"))),
        ]),
        openai::stream([openai::text("a"), openai::finish(&at("finish reason"))]),
        openai::stream([
            openai::tool_call(0, &at("call id"), &at("call name")),
            openai::finish("stop"),
        ]),
        Script::events([format!("event: {}\ndata: {{\"choices\":[]}}\n\n", at("event name"))]),
        Script::events([format!(": {}\ndata: {{\"choices\":[]}}\n\n", at("comment"))]),
        Script::events([
            openai::event(
                &json!({ "id": at("id"), "model": at("model"), "choices": [] }).to_string(),
            ),
            openai::done(),
        ]),
    ];
    for script in scripts {
        for path in [PATH, "/v1/streams"] {
            watched.app.upstream.enqueue(script.clone());
            watched.call(client.post(path).json(&chat(path != PATH))).await;
        }
        watched.app.upstream.enqueue(script);
        watched.call(client.post(PATH).json(&chat(true))).await;
    }
    watched.assert_nothing_leaked().await;
}
