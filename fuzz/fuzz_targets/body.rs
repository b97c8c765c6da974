//! A chat request's body: what is accepted can be rewritten for any provider, says there what was
//! asked for, and keeps every other member's bytes.
#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use tollgate::domain::ModelCall;

const REWRITTEN: [&str; 3] = ["model", "stream", "stream_options"];

fuzz_target!(|body: &[u8]| {
    let Ok(call) = ModelCall::parse(Bytes::copy_from_slice(body)) else { return };
    assert_eq!(call.body(), body);
    for (model, stream) in [
        (call.model.as_str(), call.stream),
        ("provider/\"quoted\\model\"", true),
        ("provider-model", false),
    ] {
        let sent = call.to_upstream(model, stream);
        let read = ModelCall::parse(sent.clone()).expect("what we send can be read");
        assert_eq!((read.model.as_str(), read.stream), (model, stream));
        assert!(read.include_usage || !stream, "usage is asked for with every stream");
        assert_eq!((&read.tools, read.max_tokens), (&call.tools, call.max_tokens));
        assert_eq!(others(&sent), others(body), "members of no concern to us changed");
        assert_eq!(read.to_upstream(model, stream), sent, "a second rewrite changes nothing");
    }
});

/// The other members' values, as they stand in the body.
fn others(body: &[u8]) -> BTreeMap<String, String> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).expect("an object");
    let others = members.into_iter().filter(|(name, _)| !REWRITTEN.contains(&name.as_str()));
    others.map(|(name, value)| (name, value.get().to_owned())).collect()
}
