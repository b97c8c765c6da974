//! What comes beside a `traceparent` goes on to the provider.

use tollgate::domain::TraceState;

use crate::support::{
    app::{TestApp, chat},
    secret::aws_key,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn parsed(headers: &[&str]) -> Option<String> {
    TraceState::parse(headers.iter().copied()).map(|state| state.as_str().to_owned())
}

#[test]
fn a_list_of_members_is_kept_as_it_is() {
    for (headers, kept) in [
        (
            &["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"] as &[_],
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        ),
        (&["a=1", "b=2"], "a=1,b=2"),
        (&[" a=1 ,\tb=x y,, "], "a=1,b=x y"),
        (&["fw529a3039@dt=FfAf~!@#$%^&*()"], "fw529a3039@dt=FfAf~!@#$%^&*()"),
        (&["0a_-*/z=v"], "0a_-*/z=v"),
    ] {
        assert_eq!(parsed(headers).as_deref(), Some(kept), "{headers:?}");
    }
}

#[test]
fn what_is_no_list_or_too_long_is_dropped_whole() {
    for headers in [
        &[] as &[_],
        &[""],
        &[" , "],
        &["a"],
        &["a="],
        &["=1"],
        &["A=1"],
        &["a b=1"],
        &["a=1=2"],
        &["a=\u{e9}"],
        &["a=1\u{7f}"],
        &["a=1,a=2"],
        &["a=1", "b"],
        &["@a=1"],
        &["a@b@c=1"],
    ] {
        assert_eq!(parsed(headers), None, "{headers:?}");
    }
    let members =
        |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
    assert!(parsed(&[&members(32)]).is_some() && parsed(&[&members(33)]).is_none());
    let long = |bytes: usize| format!("a={}", "v".repeat(bytes));
    assert!(parsed(&[&long(256)]).is_some() && parsed(&[&long(257)]).is_none());
    let [half, rest] = [254, 250].map(long);
    let both = |rest: &str| parsed(&[&half, &rest.replacen('a', "b", 1)]).map(|state| state.len());
    assert_eq!(both(&rest), Some(509));
    assert_eq!(both(&format!("{rest}123")), Some(512));
    assert_eq!(both(&format!("{rest}1234")), None);
}

#[tokio::test]
async fn it_goes_on_to_the_provider_with_its_trace_and_only_then() {
    let app = TestApp::start().await;
    let secret = format!("a={}", aws_key());
    for (parent, state, onward) in [
        (PARENT, "rojo=1, congo=2", Some("rojo=1,congo=2")),
        (PARENT, "Rojo=1", None),
        (PARENT, &secret, None),
        ("garbage", "rojo=1", None),
    ] {
        for path in ["/v1/chat/completions", "/v1/streams"] {
            let call = app.alice().post(path).header("traceparent", parent);
            call.header("tracestate", state).json(&chat(true)).send().await.bytes().await;
            let requests = app.upstream.requests();
            let request = requests.last().expect("a request");
            assert_eq!(request.header("tracestate"), onward, "{parent} {state}");
        }
    }
    app.shutdown().await;
}
