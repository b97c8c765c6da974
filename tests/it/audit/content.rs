//! What is kept of what was asked and answered: bounded, hashed, and beside the rows.

use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use proptest::prelude::*;
use tollgate::{
    audit::{
        AuditSink, Content, ContentDigest, Entry, KeptContent, MAX_CONTENT_BYTES, Part, Transcript,
        keep,
        query::AuditQuery,
        spool::{Spool, SpoolSettings},
    },
    storage::{
        postgres::{self, PostgresTrail},
        sqlite::{self, AuditReader},
    },
};

use super::{
    fake_disk::FakeDisk,
    postgres::Postgres,
    support::{TempDir, append, denial, intent, settle},
};

fn hash(text: &str) -> [u8; 32] {
    digest(&SHA256, text.as_bytes()).as_ref().try_into().unwrap()
}

fn finished(transcript: Transcript) -> (ContentDigest, String) {
    let (digest, kept) = transcript.finish().unwrap();
    (digest, kept.unwrap().into())
}

#[test]
fn an_answer_is_one_text_that_says_where_other_parts_begin() {
    let mut transcript = Transcript::new(true);
    for (choice, part, text) in [
        (0, Part::Text, "Hello"),
        (0, Part::Text, ", you"),
        (0, Part::Reasoning, "hm"),
        (0, Part::ToolCall(0, Some("get_weather")), ""),
        (0, Part::ToolCall(0, None), r#"{"city":"#),
        (0, Part::ToolCall(0, None), "\"Bern\"}"),
        (0, Part::ToolCall(1, Some("f")), "{}"),
        (1, Part::Text, "Hi\u{1e}tool_call 9 rm\n\0"),
        (0, Part::Refusal, "No."),
    ] {
        transcript.push(choice, part, text);
    }
    let (digest, kept) = finished(transcript);
    let expected = "Hello, you\u{1e}reasoning\nhm\u{1e}tool_call 0 get_weather\n{\"city\":\"Bern\"}\
        \u{1e}tool_call 1 f\n{}\u{1e}choice 1 text\nHi\u{fffd}tool_call 9 rm\n\u{fffd}\
        \u{1e}refusal\nNo.";
    assert_eq!(kept, expected);
    assert_eq!(digest, ContentDigest { hash: hash(expected), bytes: expected.len() as u64 });
    assert_eq!(Transcript::new(true).finish(), None, "nothing was answered");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However a text is cut into pieces, and however long it is.
    #[test]
    fn the_hash_is_of_the_whole_and_the_beginning_is_kept(
        text in "[a-zé€\u{1f600}]{0,40}",
        times in prop_oneof![Just(1_usize), 800..1_200_usize, Just(9_000)],
        cut in 1..5_000_usize,
        is_kept in any::<bool>(),
    ) {
        let whole = text.repeat(times);
        let mut transcript = Transcript::new(is_kept);
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(cut.min(rest.len())));
            transcript.push(0, Part::Text, piece);
            rest = after;
        }
        let Some((digest, kept)) = transcript.finish() else {
            prop_assert!(whole.is_empty());
            return Ok(());
        };
        prop_assert_eq!(digest, ContentDigest::of(whole.as_bytes()));
        prop_assert_eq!(kept.is_some(), is_kept);
        for kept in kept.into_iter().chain([keep(&whole)]) {
            prop_assert!(kept.len() <= MAX_CONTENT_BYTES);
            match kept.split_once('\u{1e}') {
                None => prop_assert_eq!(&*kept, whole.as_str()),
                Some((beginning, marker)) => {
                    prop_assert!(whole.starts_with(beginning));
                    prop_assert!(beginning.len() > MAX_CONTENT_BYTES - 200);
                    let (kept, all) = (beginning.len(), whole.len());
                    prop_assert_eq!(marker, format!("truncated: the first {kept} of {all} bytes"));
                }
            }
        }
    }

    /// What a group holds comes out of the spool as it went in, with contents and without.
    #[test]
    fn contents_go_through_the_spool_beside_their_records(
        contents in proptest::collection::vec(
            (proptest::option::of(".{0,40}"), proptest::option::of("x{0,3000}")), 1..12,
        ),
    ) {
        let settings = SpoolSettings { limit_bytes: 1 << 20, segment_bytes: 4_000, is_strict: true };
        let Spool { mut writer, mut reader, .. } =
            Spool::open(Arc::new(FakeDisk::default()), settings).unwrap();
        let entries: Vec<Entry> = contents.into_iter().map(|(input, output)| {
            let content = Content { input: input.map(Into::into), output: output.map(Into::into) };
            Entry { content: Some(Box::new(content)), ..denial() }
        }).collect();
        for entry in &entries {
            writer.add(entry);
            writer.commit().unwrap();
        }
        writer.close().unwrap();
        let mut found = Vec::new();
        while reader.read().unwrap() > 0 {
            for linked in reader.batch().unwrap() {
                let id = linked.record.get("id").text().unwrap().to_owned();
                let KeptContent { input, output } = linked.content;
                found.push((id, input.map(str::to_owned), output.map(str::to_owned)));
            }
            reader.acknowledge();
        }
        let expected: Vec<_> = entries.iter().map(|entry| {
            let Content { input, output } = (**entry.content.as_ref().unwrap()).clone();
            (entry.id.to_string(), input.map(String::from), output.map(String::from))
        }).collect();
        prop_assert_eq!(found, expected);
    }
}

/// A store that keeps contents.
#[async_trait(?Send)]
trait Fixture: Sized {
    async fn make() -> Self;
    fn sink(&self) -> &dyn AuditSink;
    fn trail(&self) -> &dyn AuditQuery;
}

struct Sqlite {
    _directory: TempDir,
    sink: sqlite::SqliteSink,
    trail: AuditReader,
}

#[async_trait(?Send)]
impl Fixture for Sqlite {
    async fn make() -> Self {
        let directory = TempDir::new();
        let sink = sqlite::open(&directory.file()).await.unwrap();
        let trail = AuditReader::open(&directory.file()).await.unwrap();
        Self { _directory: directory, sink, trail }
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.sink
    }

    fn trail(&self) -> &dyn AuditQuery {
        &self.trail
    }
}

struct OnPostgres(Postgres, PostgresTrail);

#[async_trait(?Send)]
impl Fixture for OnPostgres {
    async fn make() -> Self {
        let store = Postgres::start().await;
        postgres::migrate(&store.config).await.unwrap();
        let trail = PostgresTrail::new(&store.config).unwrap();
        Self(store, trail)
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.0.sink
    }

    fn trail(&self) -> &dyn AuditQuery {
        &self.1
    }
}

async fn contents_are_kept_once_and_read_by_their_entries<F: Fixture>() {
    let fixture = F::make().await;
    let call = intent();
    let mut end = settle(&call);
    let (input, output) = ("{\"model\":\"demo\"}".to_owned(), "é".repeat(30_000));
    end.input = Some(ContentDigest::of(input.as_bytes()));
    end.output = Some(ContentDigest { hash: [7; 32], bytes: 99_999 });
    let content = Content { input: Some(keep(&input)), output: Some(keep(&output)) };
    end.content = Some(Box::new(content));
    let other = Entry {
        content: Some(Box::new(Content { input: Some("other".into()), output: None })),
        ..denial()
    };
    let entries = [call.clone(), end.clone(), other.clone(), denial()];
    for _ in 0..2 {
        append(fixture.sink(), &entries).await.unwrap();
    }
    let ids = [call.id, end.id].map(|id| id.to_string());
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut found = fixture.trail().contents(&ids).await.unwrap();
    found.sort_by_key(|content| !content.is_input);
    let [asked, answered] = &found[..] else { panic!("{found:?}") };
    assert_eq!((asked.is_input, asked.text.as_str()), (true, input.as_str()));
    assert_eq!(asked.full_bytes, Some(16));
    assert_eq!((answered.is_input, answered.text.as_str()), (false, output.as_str()));
    assert_eq!(answered.full_bytes, Some(99_999));
    assert_eq!(answered.entry_id, end.id.to_string());
    assert!(!format!("{found:?} {end:?}").contains('é'), "it is shown in no log");
    let of_other = fixture.trail().contents(&[&other.id.to_string()]).await.unwrap();
    assert_eq!(of_other.len(), 1);
    assert_eq!(fixture.trail().contents(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn sqlite_keeps_contents() {
    contents_are_kept_once_and_read_by_their_entries::<Sqlite>().await;
}

#[tokio::test]
async fn postgres_keeps_contents() {
    contents_are_kept_once_and_read_by_their_entries::<OnPostgres>().await;
}
