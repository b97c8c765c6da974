//! Which of a request's content has a size that its bytes bound.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Of these a byte is at most a token.
const BOUNDED: &[&str] = &["text", "refusal", "input_audio"];

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// Is all that the model reads of a request's `messages` in them, as text or sound? What is not
/// understood is not.
pub(super) fn are_bounded(messages: &str) -> bool {
    serde_json::from_str::<Vec<Message<'_>>>(messages)
        .is_ok_and(|messages| messages.iter().all(Message::is_bounded))
}

impl Message<'_> {
    fn is_bounded(&self) -> bool {
        let Some(content) = self.content.map(RawValue::get) else { return true };
        content.starts_with('"')
            || content == "null"
            || serde_json::from_str::<Vec<Part<'_>>>(content)
                .is_ok_and(|parts| parts.iter().all(|part| BOUNDED.contains(&&*part.kind)))
    }
}
