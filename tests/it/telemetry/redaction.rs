//! No line and no span has a secret in it.

use std::{fmt::Debug, sync::Arc, thread};

use fake_opentelemetry_collector::FakeCollectorServer;
use tollgate::{
    config::{LogFormat, RedactionConfig, TelemetryConfig},
    domain::RequestId,
    redact::Redactor,
    telemetry::{
        ModelEnd, ModelStart, ServerStart, Telemetry, log_panics, model_span, server_span,
    },
};
use tracing::dispatcher::with_default;

use super::{CALLER, Log};
use crate::support::{
    leak::spelled,
    secret::{aws_key, github_token},
};

const FORMATS: [LogFormat; 2] = [LogFormat::Json, LogFormat::Text];

fn redactor() -> Arc<Redactor> {
    Arc::new(Redactor::new(&RedactionConfig::default()).unwrap())
}

/// What is logged of `work`, with colors.
fn logged(format: LogFormat, work: impl FnOnce()) -> String {
    let log = Log::default();
    let config = TelemetryConfig { log_format: format, ..TelemetryConfig::default() };
    let (telemetry, dispatch) = Telemetry::build(&config, log.clone(), true).unwrap();
    telemetry.redactor().set(redactor());
    with_default(&dispatch, work);
    drop(telemetry);
    log.text()
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is there to be printed")]
struct Holder<'a> {
    text: &'a str,
}

#[test]
fn whatever_a_field_is_it_has_no_secret() {
    let (aws, github) = (aws_key(), github_token());
    for format in FORMATS {
        let text = logged(format, || {
            tracing::info!(text = aws.as_str(), shown = %aws, debugged = ?Holder { text: &aws }, "{github}");
            tracing::warn!("line\n{aws}\t{github}\"");
            tracing::error!(error = %std::io::Error::other(format!("no {github}")), list = ?[&aws]);
        });
        assert!(!text.contains(&aws[4..]) && !text.contains(&github[4..]), "{text}");
        assert_eq!(text.matches("[REDACTED:").count(), 8, "{text}");
    }
}

#[test]
fn a_value_is_cut_behind_its_secrets() {
    let aws = aws_key();
    for format in FORMATS {
        for before in [4_070, 4_080, 4_090, 4_096, 12_270, 12_280] {
            let value = format!("{} {aws} {}", "x".repeat(before), "y".repeat(20_000));
            let text =
                logged(format, || tracing::info!(value, debugged = ?Holder { text: &value }));
            assert!(!text.contains("AKIA") && text.len() < 10_000, "{before}: {}", text.len());
        }
        // Placeholders are shorter than what they stand for.
        let value = format!("{} ", github_token()).repeat(1_000);
        let text = logged(format, || tracing::info!(value));
        assert!(!text.contains("ghp_") && text.len() < 10_000);
    }
}

#[test]
fn lines_are_json_still() {
    let log = logged(LogFormat::Json, || {
        tracing::info!(text = format!("\"{}\\\n", aws_key()), "{}", "ö".repeat(9_000));
    });
    let line: serde_json::Value = serde_json::from_str(&log).unwrap();
    let text = line["text"].as_str().unwrap();
    assert!(text.starts_with("\"[REDACTED:aws") && text.ends_with("]\\\n"), "{text}");
}

#[test]
fn a_panic_has_none() {
    for place in [0, 100, 118] {
        let log = Log::default();
        let (telemetry, dispatch) =
            Telemetry::build(&TelemetryConfig::default(), log.clone(), false).unwrap();
        telemetry.redactor().set(redactor());
        log_panics(telemetry.redactor().clone());
        let message = format!("{} {}", "x".repeat(place), aws_key());
        let panicking = thread::spawn(move || with_default(&dispatch, || panic!("{message}")));
        panicking.join().unwrap_err();
        drop(std::panic::take_hook());
        drop(telemetry);
        let text = log.text();
        assert!(text.contains("panic") && !text.contains("AKIA"), "{text}");
    }
}

#[tokio::test]
async fn a_span_has_none_in_its_name_nor_its_attributes() {
    let mut collector = FakeCollectorServer::start().await.unwrap();
    let config =
        TelemetryConfig { otlp_endpoint: Some(collector.endpoint()), ..TelemetryConfig::default() };
    let (telemetry, dispatch) = Telemetry::build(&config, std::io::sink(), false).unwrap();
    telemetry.redactor().set(redactor());
    let (aws, github) = (aws_key(), github_token());
    let encoded = spelled(&github, |byte| format!("%{byte:02x}"));
    let id = RequestId::from_caller(&github).unwrap();
    with_default(&dispatch, || {
        for path in [format!("/v1/models/{aws}"), format!("/{encoded}")] {
            let start = ServerStart {
                method: "GET",
                route: None,
                path: &path,
                scheme: "http",
                request_id: &id,
                remote: Some(CALLER),
            };
            server_span(&start).end_server(404, Some(&aws));
        }
        let model = model_span(&ModelStart {
            model: &aws,
            provider: &github,
            stream: true,
            max_tokens: None,
            server: Some((&aws, 443)),
            request_id: &id,
            parent: CALLER,
        });
        model.end_model(&ModelEnd {
            response_model: Some(&aws),
            response_id: Some(&github),
            finish_reasons: &[&aws, "stop"],
            ..ModelEnd::default()
        });
    });
    telemetry.shutdown().await;
    let spans = collector.exported_spans(0, std::time::Duration::ZERO).await;
    assert_eq!(spans.len(), 3);
    let printed = format!("{spans:#?}");
    for secret in [&aws[4..], &github[4..], &encoded[12..]] {
        assert!(!printed.contains(secret), "{printed}");
    }
    let chat = spans.iter().find(|span| span.name.starts_with("chat ")).unwrap();
    assert!(chat.name.starts_with("chat [REDACTED:aws"), "{chat:?}");
    assert!(chat.attributes["gen_ai.response.finish_reasons"].contains("stop"), "{chat:?}");
}
