//! A call whose provider panics is ended all the same: told once, settled, written down.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use tollgate::{
    domain::Vocabulary,
    pipeline::Snapshot,
    provider::{
        EventStream, Model, Opened, Provider, ProviderError, ProviderRequest, Registry, Reply,
        Route, sse::Event,
    },
    redact::KeySource,
};

use crate::support::{
    app::{TestApp, chat},
    native::{Native, assert_whole},
    secret::aws_key,
    upstream::openai,
};

use super::seen::{End, PATH, read};

/// Where the provider panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before there is an answer.
    Head,
    /// After the beginning of a secret, which is held back.
    Held,
    /// After a whole secret.
    Told,
}

struct Panicking(Place);

impl Panicking {
    fn text(&self) -> String {
        let secret = aws_key();
        match self.0 {
            Place::Head => String::new(),
            Place::Held => format!("see {}", &secret[..9]),
            Place::Told => format!("see {secret} there"),
        }
    }
}

/// What it says may be anything, too.
fn panic() -> ! {
    panic!("while it had {}", aws_key())
}

fn event(raw: Bytes) -> Event {
    let data = raw.slice(b"data: ".len()..raw.len() - 2);
    Event { raw, data, name: None, has_data: true, plain: true }
}

#[async_trait]
impl Provider for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    async fn send(&self, _: ProviderRequest) -> Result<Reply, ProviderError> {
        if self.0 == Place::Head {
            panic();
        }
        let first = vec![event(openai::role()), event(openai::text(&self.text()))];
        Ok(Reply::Stream(Opened { first, rest: Box::new(Rest) }))
    }
}

struct Rest;

impl EventStream for Rest {
    fn poll_events(
        &mut self,
        _: &mut Context<'_>,
        _: &mut Vec<Event>,
    ) -> Poll<Result<(), ProviderError>> {
        panic()
    }
}

/// A gateway whose model `m` is answered by such a provider.
async fn panicking(place: Place) -> TestApp {
    let app = TestApp::start().await;
    app.count_once().await;
    let vocabulary = Vocabulary::new(&app.config.capabilities.vocabulary);
    let key = KeySource::new(&app.config.redaction, &app.config.audit.path).open().unwrap();
    let mut snapshot =
        Snapshot::new(&app.config, &vocabulary, key, &app.gateway().offload).unwrap();
    let model = snapshot.registry.get("m").expect("the model `m`");
    let model = Model {
        name: model.name.clone(),
        requires: model.requires.clone(),
        price: model.price,
        max_input_tokens: None,
        max_output_tokens: None,
        routes: vec![Route { provider: Arc::new(Panicking(place)), model: "m".to_owned() }],
    };
    snapshot.registry = Registry::from_iter([model]);
    app.gateway().snapshot.store(Arc::new(snapshot));
    app
}

fn assert_clean(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(!text.contains(&aws_key()) && !text.contains("while it had"), "{text}");
}

/// The one call is ended as a fault of ours, and holds nothing.
async fn assert_ended(app: &TestApp, redacted: bool) {
    app.until_idle().await;
    assert_eq!(app.gateway().budgets.open(), 0);
    let (_, terminal) = app.the_call().await;
    assert_eq!((terminal.outcome.as_deref(), terminal.status), (Some("internal"), Some(500)));
    assert_eq!(terminal.redactions, redacted.then(|| json!({ "aws-access-key-id": 1 })));
    assert_clean(serde_json::to_string(&terminal).unwrap().as_bytes());
}

#[tokio::test]
async fn before_the_head_it_is_answered_with_an_error() {
    for (path, stream) in [(PATH, false), (PATH, true), ("/v1/streams", true)] {
        let app = panicking(Place::Head).await;
        let seen = read(app.alice().post(path).json(&chat(stream))).await.recorded(&app).await;
        seen.assert_refused(500, "internal", Some("estimate"));
        assert_clean(&seen.body);
        assert_ended(&app, false).await;
        app.shutdown().await;
    }
}

#[tokio::test]
async fn in_a_stream_what_was_held_comes_first_and_then_one_error() {
    for (place, is_secret) in [(Place::Held, false), (Place::Told, true)] {
        let app = panicking(place).await;
        let seen = read(app.alice().post(PATH).json(&chat(true))).await.recorded(&app).await;
        let stream = seen.stream();
        assert_eq!(stream.end, End::Error("internal".to_owned()));
        assert_text(place, &stream.text());
        assert_clean(&seen.body);
        assert_ended(&app, is_secret).await;
        app.shutdown().await;
    }
}

#[tokio::test]
async fn a_native_stream_ends_with_one_error_frame() {
    for (place, is_secret) in [(Place::Held, false), (Place::Told, true)] {
        let app = panicking(place).await;
        let mut native = Native::open(&app.alice(), &chat(true)).await;
        let frames = native.rest().await;
        let last = assert_whole(0, &frames);
        assert_eq!((&*last.event, &last.data["code"]), ("error", &json!("internal")));
        let tokens = frames.iter().filter(|frame| frame.event == "token");
        let text: String = tokens.map(|frame| frame.data["delta"].as_str().unwrap()).collect();
        assert_text(place, &text);
        assert_clean(&native.events.received);
        let mut again = Native::resume(&app.alice(), &native.id, 0).await;
        assert_eq!(again.rest().await, frames);
        assert_ended(&app, is_secret).await;
        app.shutdown().await;
    }
}

fn assert_text(place: Place, text: &str) {
    match place {
        Place::Head | Place::Held => assert_eq!(text, Panicking(place).text()),
        Place::Told => {
            let rest =
                text.strip_prefix("see [REDACTED:aws-access-key-id:").expect("a placeholder");
            assert!(rest.ends_with("] there"), "{text}");
        }
    }
}
