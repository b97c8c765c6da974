use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::{
    config::{LogFormat, TelemetryConfig},
    domain::{RequestId, TraceContext},
    telemetry::{Telemetry, TelemetryError, server_span},
};
use tracing::dispatcher::with_default;

use super::{CALLER, Log, request};

/// Runs `work` with a log of this configuration and returns what was logged.
fn logged(config: &TelemetryConfig, work: impl FnOnce()) -> Log {
    let log = Log::default();
    let (telemetry, dispatch) = Telemetry::build(config, log.clone(), false).unwrap();
    with_default(&dispatch, work);
    drop(telemetry);
    log
}

fn filtered(filter: &str) -> TelemetryConfig {
    TelemetryConfig { log: filter.to_owned(), ..TelemetryConfig::default() }
}

#[test]
fn a_line_in_a_call_bears_the_calls_ids() {
    let id = RequestId::from_caller("req-1").unwrap();
    let log = logged(&TelemetryConfig::default(), || {
        let call = server_span(&request(&id, Some(CALLER)));
        call.scope(id.clone()).enter(|| tracing::info!(attempt = 2, "routed"));
    });

    let line = log.lines().pop().unwrap();
    assert_eq!(line["message"], "routed");
    assert_eq!(line["attempt"], 2);
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["target"], "it::telemetry::log");
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line["request_id"], "req-1");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(line.as_object().unwrap().len(), 7, "{line}");
}

#[test]
fn a_line_in_a_model_call_bears_the_same_ids_after_the_request_has_ended() {
    let id = RequestId::generate();
    let mut trace_id = String::new();
    let log = logged(&TelemetryConfig::default(), || {
        let server = server_span(&request(&id, None));
        trace_id = server.trace().trace_id_hex();
        let scope = server.scope(id.clone());
        server.end_server(200, None);
        scope.enter(|| tracing::info!("still streaming"));
    });

    let line = log.lines().pop().unwrap();
    assert_eq!(line["trace_id"], trace_id);
    assert_eq!(line["request_id"], id.as_str());
}

#[test]
fn the_spans_of_libraries_are_not_logged() {
    let id = RequestId::from_caller("req-2").unwrap();
    let log = logged(&TelemetryConfig::default(), || {
        let call = server_span(&request(&id, Some(CALLER)));
        call.scope(id.clone()).enter(|| {
            tracing::info_span!("inner", secret = "s3cret").in_scope(|| tracing::warn!("deep"));
        });
    });

    assert_eq!(log.lines()[0]["request_id"], "req-2");
    assert!(!log.text().contains("s3cret"), "{}", log.text());
}

#[test]
fn a_line_outside_a_call_has_no_ids() {
    let log = logged(&TelemetryConfig::default(), || tracing::info!("listening"));

    let line = log.lines().pop().unwrap();
    assert!(line.get("trace_id").is_none() && line.get("request_id").is_none(), "{line}");
}

#[test]
fn a_stricter_filter_keeps_the_ids() {
    let id = RequestId::from_caller("req-3").unwrap();
    let log = logged(&filtered("warn"), || {
        let call = server_span(&request(&id, Some(CALLER)));
        call.scope(id.clone()).enter(|| {
            tracing::info!("not shown");
            tracing::warn!("shown");
        });
    });

    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["request_id"], "req-3");
}

#[test]
fn with_the_log_off_ids_are_had_all_the_same() {
    let id = RequestId::generate();
    let log = logged(&filtered("off"), || {
        let call = server_span(&request(&id, Some(CALLER)));
        assert_eq!(call.trace().trace_id, CALLER.trace_id);
        call.scope(id.clone()).enter(|| tracing::error!("unheard"));
    });

    assert_eq!(log.text(), "");
}

#[test]
fn every_kind_of_value_is_valid_json() {
    let log = logged(&TelemetryConfig::default(), || {
        tracing::info!(
            quote = "a \"b\"\n\u{1b}[31m",
            debug = ?vec!["x\ty"],
            float = 0.5,
            nan = f64::NAN,
            yes = true,
            minus = -1,
            large = u64::MAX,
            level = "not the line's own",
            "{}",
            "two\nlines"
        );
    });

    assert_eq!(log.text().lines().count(), 1, "one event is one line");
    let line = log.lines().pop().unwrap();
    assert_eq!(line["quote"], "a \"b\"\n\u{1b}[31m");
    assert_eq!(line["debug"], r#"["x\ty"]"#);
    assert_eq!(line["float"], 0.5);
    assert_eq!(line["nan"], json!(null));
    assert_eq!(line["yes"], true);
    assert_eq!(line["minus"], -1);
    assert_eq!(line["large"], u64::MAX);
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["level_"], "not the line's own");
    assert_eq!(line["message"], "two\nlines");
}

#[test]
fn a_long_value_is_cut() {
    let endless = "é".repeat(100_000);
    let log = logged(&TelemetryConfig::default(), || {
        tracing::info!(text = endless, debug = ?endless, "long");
    });

    assert!(log.text().len() < 20_000, "{}", log.text().len());
    let line = log.lines().pop().unwrap();
    assert!(line["text"].as_str().unwrap().ends_with("é…"));
    assert!(line["debug"].as_str().unwrap().ends_with("é…"));
}

#[test]
fn the_text_format_names_the_call() {
    let id = RequestId::from_caller("req-4").unwrap();
    let config = TelemetryConfig { log_format: LogFormat::Text, ..TelemetryConfig::default() };
    let log = logged(&config, || {
        let call = server_span(&request(&id, Some(CALLER)));
        call.scope(id.clone()).enter(|| tracing::info!(attempt = 2, "routed"));
    });

    let text = log.text();
    for part in ["INFO", "routed", "attempt=2", "4bf92f3577b34da6a3ce929d0e0e4736", "req-4"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_bad_filter_is_refused() {
    let refused = Telemetry::build(&filtered("tollgate=loud"), io::sink(), false);

    assert!(matches!(refused, Err(TelemetryError::Filter(_))), "{refused:?}");
}

#[test]
fn without_a_caller_each_request_starts_a_trace() {
    let id = RequestId::generate();
    let (first, second) = (server_span(&request(&id, None)), server_span(&request(&id, None)));

    assert_ne!(first.trace().trace_id, second.trace().trace_id);
    assert_ne!(first.trace().trace_id, 0);
}

#[test]
fn the_callers_trace_goes_on_under_a_span_of_ours() {
    let id = RequestId::generate();
    let caller = TraceContext { sampled: false, ..CALLER };
    let trace = server_span(&request(&id, Some(caller))).trace();

    assert_eq!(trace.trace_id, caller.trace_id);
    assert_ne!(trace.span_id, caller.span_id);
    assert!(!trace.sampled, "the caller's decision is kept");
}

/// Writes nothing until it is let go.
struct Stuck(Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error is the sender gone, which lets go too.
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_stderr_holds_nobody_up() {
    let (go, stuck) = mpsc::channel();
    let (telemetry, dispatch) =
        Telemetry::build(&TelemetryConfig::default(), Stuck(stuck), false).unwrap();

    let started = Instant::now();
    with_default(&dispatch, || (0..20_000).for_each(|line| tracing::info!(line, "into the void")));
    drop(telemetry);

    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(go);
}

#[tokio::test]
async fn a_task_has_its_calls_ids_whenever_it_runs_and_no_other_has_them() {
    let ids = ["req-5", "req-6"].map(|id| RequestId::from_caller(id).unwrap());
    let log = Log::default();
    let config = TelemetryConfig::default();
    let (telemetry, dispatch) = Telemetry::build(&config, log.clone(), false).unwrap();
    let _default = tracing::dispatcher::set_default(&dispatch);
    let calls = ids.each_ref().map(|id| {
        let scope = server_span(&request(id, None)).scope(id.clone());
        scope.run(async {
            tracing::info!("first");
            tokio::task::yield_now().await;
            tracing::info!("second");
        })
    });
    let outside = async {
        tokio::task::yield_now().await;
        tracing::info!("outside");
    };
    let [one, other] = calls;
    tokio::join!(one, outside, other);
    drop(telemetry);

    let lines = log.lines();
    let said = |message: &str| {
        let lines = lines.iter().filter(|line| line["message"] == message);
        let ids = lines.map(|line| line["request_id"].as_str().map(str::to_owned));
        ids.collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["req-5", "req-6"].map(|id| Some(id.to_owned())));
    assert_eq!(said("first"), both);
    assert_eq!(said("second"), both);
    assert_eq!(said("outside"), BTreeSet::from([None]));
}
