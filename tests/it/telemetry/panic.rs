use std::thread;

use tollgate::{
    config::TelemetryConfig,
    telemetry::{Telemetry, log_panics},
};

use super::Log;

/// Panics in a thread named `worker` and returns the one line that is logged.
fn line_of(panic: impl FnOnce() + Send + 'static) -> serde_json::Value {
    let log = Log::default();
    let (telemetry, dispatch) =
        Telemetry::build(&TelemetryConfig::default(), log.clone(), false).unwrap();
    log_panics(telemetry.redactor().clone());
    let worker = thread::Builder::new().name("worker".to_owned());
    let worker = worker.spawn(move || tracing::dispatcher::with_default(&dispatch, panic)).unwrap();
    worker.join().unwrap_err();
    // Back to the test harness's own, for the assertions.
    drop(std::panic::take_hook());
    drop(telemetry);
    let mut lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

#[test]
fn a_panic_is_one_line_with_its_place() {
    let line = line_of(|| panic!("a plain\nmessage"));

    assert_eq!(line["level"], "ERROR");
    assert_eq!(line["message"], "a plain\nmessage");
    assert_eq!(line["thread"], "worker");
    assert!(line["location"].as_str().unwrap().contains("panic.rs:"), "{line}");
}

#[test]
fn a_panic_does_not_print_the_data_it_is_about() {
    let secret = "sk-ABCDEF".to_owned();
    let unwrapped = line_of({
        let secret = secret.clone();
        move || secret.parse::<u64>().map_err(|_| secret).map(drop).unwrap()
    });
    let sliced = line_of({
        let secret = secret.clone();
        move || drop(secret[..99].to_owned())
    });

    assert_eq!(unwrapped["message"], "called `Result::unwrap()` on an `Err` value");
    assert!(sliced["message"].as_str().unwrap().contains("99"), "{sliced}");
    assert!(!format!("{unwrapped}{sliced}").contains("sk-"), "{unwrapped} {sliced}");
}
