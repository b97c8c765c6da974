//! A stream's chunks through redaction alone, and what a client makes of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use tollgate::{
    pipeline::{AnswerError, AnswerStream, Taken},
    provider::{
        ChunkView,
        sse::{Decoder, Event},
    },
    redact::{Counts, Depth},
};

use super::REDACTOR;

/// Secrets of the formats that are cut in every way; `⁞` keeps scanners of sources away.
pub const SECRETS: [&str; 4] = [
    "AKIA⁞Z7Q2M4X6B3N5C7D2",
    "ghp_⁞x7Kq2mWv9RtY4bNc8ZpL3sHd6JfG1aQeUo5T",
    "Bearer ⁞q9Xz4Lm7Rk2Vt8Wp3Nb6Jc",
    "hf_⁞QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi",
];

pub fn secret(spelled: &str) -> String {
    spelled.replace('⁞', "")
}

pub fn redacted(text: &str) -> String {
    REDACTOR.redact_text(text, Depth::Formats, &mut Counts::new()).into_owned()
}

/// What came out.
#[derive(Debug, Default)]
pub struct Out {
    /// Each chunk, as its client reads it.
    pub chunks: Vec<Value>,
    pub data: Vec<Bytes>,
    pub counts: Counts,
}

pub fn events(bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    Decoder::new(1 << 20).feed(Bytes::copy_from_slice(bytes), &mut events).unwrap();
    events.retain(|event| event.has_data && !event.is_done());
    events
}

/// All these events, and the stream's end.
pub fn run(bytes: &[u8]) -> Out {
    try_run(bytes).unwrap()
}

pub fn try_run(bytes: &[u8]) -> Result<Out, AnswerError> {
    let (mut stream, mut out) = (AnswerStream::default(), Out::default());
    let mut push = |data: Bytes| {
        out.chunks.push(serde_json::from_slice(&data).expect("it is JSON"));
        out.data.push(data);
    };
    for event in events(bytes) {
        let view = ChunkView::parse(&event.data).unwrap();
        match stream.take(&REDACTOR, &event, &view)? {
            Taken::Untouched => push(event.data.clone()),
            Taken::Replaced(events) => events.into_iter().for_each(|event| push(event.data)),
        }
    }
    stream.finish(&REDACTOR).into_iter().for_each(|event| push(event.data));
    out.counts = stream.counts().clone();
    Ok(out)
}

/// A text of an answer: its choice, and the way to it in a delta. A tool call's way has its index.
pub type Field = (u64, String);

impl Out {
    /// The answer's texts, put together as a client does.
    pub fn texts(&self) -> BTreeMap<Field, String> {
        texts(&self.chunks)
    }

    pub fn text(&self, choice: u64, way: &str) -> String {
        self.texts().remove(&(choice, way.to_owned())).unwrap_or_default()
    }

    pub fn raw(&self) -> String {
        self.data.iter().map(|data| std::str::from_utf8(data).unwrap()).collect()
    }

    /// The chunks that end a choice, by their place.
    pub fn finishes(&self) -> Vec<(usize, u64, String)> {
        let mut found = Vec::new();
        for (place, chunk) in self.chunks.iter().enumerate() {
            for choice in chunk["choices"].as_array().into_iter().flatten() {
                if let Some(reason) = choice["finish_reason"].as_str() {
                    found.push((place, choice["index"].as_u64().unwrap(), reason.to_owned()));
                }
            }
        }
        found
    }

    /// The place of the last chunk with text of this field.
    pub fn last_of(&self, choice: u64, way: &str) -> Option<usize> {
        let has = |chunk: &Value| {
            let texts = texts(std::slice::from_ref(chunk));
            texts.get(&(choice, way.to_owned())).is_some_and(|text| !text.is_empty())
        };
        self.chunks.iter().rposition(has)
    }
}

pub fn texts(chunks: &[Value]) -> BTreeMap<Field, String> {
    let mut texts = BTreeMap::new();
    for chunk in chunks {
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap();
            gather(&choice["delta"], String::new(), &mut |way, text| {
                texts.entry((index, way)).or_insert_with(String::new).push_str(text);
            });
        }
    }
    texts
}

fn gather(value: &Value, way: String, add: &mut impl FnMut(String, &str)) {
    match value {
        Value::String(text) => add(way, text),
        Value::Array(elements) => {
            for (place, element) in elements.iter().enumerate() {
                let place = element["index"].as_u64().unwrap_or(place as u64);
                gather(element, format!("{way}.{place}"), add);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                gather(member, format!("{way}.{name}"), add);
            }
        }
        _ => {}
    }
}
