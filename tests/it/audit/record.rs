//! The one encoding of a record: its bytes stay, and nothing else decodes.

use proptest::prelude::*;
use tollgate::audit::{
    Entry, FIELDS, FieldType, MAX_RECORD_BYTES, MAX_TEXT_BYTES, Record, RecordError, Value, encode,
};

use super::support::{denial, intent, settle};

fn encoded(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(entry, &mut bytes);
    bytes
}

fn value(field: FieldType) -> BoxedStrategy<Option<String>> {
    match field {
        FieldType::Text => prop::option::of("[^\0]{0,20}").boxed(),
        FieldType::Number => prop::option::of(any::<i64>().prop_map(|n| n.to_string())).boxed(),
    }
}

fn record(values: &[Option<String>]) -> Record<'_> {
    Record::new(&std::array::from_fn(|at| match (&values[at], FIELDS[at].1) {
        (None, _) => Value::Null,
        (Some(text), FieldType::Text) => Value::Text(text),
        (Some(text), FieldType::Number) => Value::Number(text.parse().unwrap()),
    }))
}

#[test]
fn every_field_of_an_entry_has_its_place() {
    let end = settle(&intent());
    let bytes = encoded(&end);
    let record = Record::decode(&bytes).unwrap();
    for ((name, field), value) in FIELDS.iter().zip(record.values()) {
        let is_right = match field {
            FieldType::Text => value.text().is_some(),
            FieldType::Number => value.number().is_some(),
        };
        assert!(is_right, "{name} is {value:?}");
        assert_eq!(record.get(name), *value);
    }
    assert_eq!(record.get("id"), Value::Text(&end.id.to_string()));
    assert_eq!(record.get("stream_id"), Value::Text(&end.stream_id.unwrap().to_string()));
    assert_eq!(record.get("trace_id"), Value::Text("0000000000000000000000000af76519"));
    assert_eq!(record.get("capabilities"), Value::Text("code:read model:reasoning"));
    assert_eq!(record.get("extra"), Value::Text(r#"{"cost_center":"42"}"#));
    assert_eq!(record.get("time_to_first_micros"), Value::Number(98_765));
    assert_eq!(record.get("no_such_field"), Value::Null);
}

/// If this fails, hashes of records that are stored no longer match: make a new version instead.
#[test]
fn the_bytes_stay_what_they_are() {
    let mut entry = denial();
    entry.id = uuid::Uuid::from_u128(1);
    entry.time = jiff::Timestamp::from_microsecond(1_234_567).unwrap();
    let mut expected = vec![1, 8];
    let text = |text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        [&[2, 0, length], text.as_bytes()].concat()
    };
    expected.extend(text("00000000-0000-0000-0000-000000000001"));
    expected.push(0);
    expected.extend([1, 0, 0, 0, 0, 0, 0x12, 0xd6, 0x87]);
    expected.extend([text("denied"), text("missing_token")].concat());
    expected.extend([1, 0, 0, 0, 0, 0, 0, 1, 0x91]);
    expected.extend([text("req-1"), text("create_chat_completion")].concat());
    assert_eq!(encoded(&entry), expected);
}

#[test]
fn what_strangers_send_is_cut_between_characters_and_holds_no_nul() {
    let huge = "é".repeat(1 << 20);
    let entry = Entry {
        request_id: format!("\0{}", "\0".repeat(MAX_TEXT_BYTES)),
        model: Some(format!("a{huge}")),
        redactions: Some("\0'; DROP TABLE audit; --".to_owned()),
        ..settle(&intent())
    };
    let bytes = encoded(&entry);
    assert!(bytes.len() < MAX_RECORD_BYTES);
    let record = Record::decode(&bytes).unwrap();
    assert_eq!(record.get("model").text().map(str::len), Some(MAX_TEXT_BYTES - 1));
    assert_eq!(record.get("redactions"), Value::Text("\u{fffd}'; DROP TABLE audit; --"));
    let request_id = record.get("request_id").text().unwrap();
    assert!(request_id.len() <= MAX_TEXT_BYTES && request_id.chars().all(|c| c == '\u{fffd}'));
}

#[test]
fn bytes_of_another_kind_are_refused() {
    let good = encoded(&settle(&intent()));
    for cut in 0..good.len() {
        Record::decode(&good[..cut]).unwrap_err();
    }
    Record::decode(&[&*good, &[0]].concat()).unwrap_err();
    assert_eq!(Record::decode(&[9, 0]), Err(RecordError::Version(9)));
    for wrong in [&[1, 1, 0][..], &[1, 1, 7], &[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 200]] {
        Record::decode(wrong).unwrap_err();
    }
    for text in [&b"\xff"[..], b"\0"] {
        let bytes = [&[1, 1, 2, 0, 1], text].concat();
        assert_eq!(Record::decode(&bytes), Err(RecordError::Malformed));
    }
}

proptest! {
    #[test]
    fn a_record_comes_back_and_is_encoded_in_one_way(
        values in FIELDS.iter().map(|(_, field)| value(*field)).collect::<Vec<_>>()
    ) {
        let record = record(&values);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let back = Record::decode(&bytes).unwrap();
        prop_assert_eq!(&back, &record);
        let mut again = Vec::new();
        back.encode(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn whatever_decodes_is_the_encoding_of_what_it_decodes_to(
        at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = encoded(&settle(&intent()));
        *at.get_mut(&mut bytes) = byte;
        if let Ok(record) = Record::decode(&bytes) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
