//! The caller's own limit on the answer, in every way that JSON writes a whole number.

use serde_json::json;

use crate::support::{
    app::{TestApp, chat},
    upstream::openai,
};

#[tokio::test]
async fn a_whole_number_is_taken_however_it_is_written_and_sent_on_as_it_was() {
    let app = TestApp::start().await;
    for written in ["64", "64.0", "6.4e1", "0", "1e30", "null"] {
        app.upstream.enqueue(openai::text_stream(["Hello"]));
        let body = format!(
            r#"{{"model":"m","stream":true,"messages":[],"max_completion_tokens":{written}}}"#
        );
        let call = app.alice().post("/v1/chat/completions");
        let response = call.header("content-type", "application/json").body(body).send().await;
        assert_eq!(response.status, 200, "{written}");
        response.bytes().await;
        let requests = app.upstream.requests();
        let sent = requests.last().expect("a request").body.clone();
        let sent = String::from_utf8(sent.to_vec()).expect("UTF-8");
        assert!(sent.contains(&format!(r#""max_completion_tokens":{written}}}"#)), "{sent}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn what_is_no_whole_number_is_refused_by_name() {
    let app = TestApp::start().await;
    for field in ["max_completion_tokens", "max_tokens"] {
        for wrong in [json!(-1), json!(64.5), json!("64"), json!([64]), json!(true)] {
            let mut body = chat(true);
            body[field] = wrong.clone();
            let response = app.alice().post("/v1/chat/completions").json(&body).send().await;
            assert_eq!(response.status, 400, "{wrong}");
            assert_eq!(response.json().await["error"]["param"], field, "{wrong}");
        }
    }
    app.shutdown().await;
}
