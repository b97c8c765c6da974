//! Entries to write, directories to write them to, and rows as the tests compare them.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tollgate::{
    audit::{
        AuditSink, Chain, ContentDigest, Entry, EntryKind, Link, Linked, Record, SinkError,
        StoredEntry, encode,
    },
    domain::{CallId, Caller, MicroUsd, StreamId, TrustLevel, Usage, UsageSource, Vocabulary},
};

/// A directory of one test's own, gone with it.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-audit-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("data/tollgate.db")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn caller() -> Arc<Caller> {
    let vocabulary = Vocabulary::new(["code:read", "model:reasoning"]);
    Arc::new(Caller {
        subject: "user-1".to_owned(),
        issuer: "https://bff.example".to_owned(),
        tier: "pro".to_owned(),
        capabilities: vocabulary.names().filter_map(|name| vocabulary.get(name)).collect(),
        agent: Some("coder".to_owned()),
        trust: TrustLevel::L2,
        extra: BTreeMap::from([("cost_center".to_owned(), "42".to_owned())]),
    })
}

/// The intent of a new call.
pub fn intent() -> Entry {
    let mut entry = Entry::new(EntryKind::Intent, "create_chat_completion", "req-1");
    entry.call_id = Some(CallId::generate());
    entry.caller = Some(caller());
    entry.model = Some("demo".to_owned());
    entry
}

/// The end of that call, with everything set.
pub fn settle(intent: &Entry) -> Entry {
    Entry {
        required: Some("model:reasoning".to_owned()),
        provider: Some("scripted".to_owned()),
        provider_model: Some("demo-1".to_owned()),
        stream_id: Some(StreamId::generate()),
        trace_id: Some(0x0af7_6519),
        client_address: Some(Ipv4Addr::LOCALHOST.into()),
        usage: Some(Usage {
            input_tokens: 312,
            output_tokens: 118,
            cached_input_tokens: 100,
            reasoning_tokens: 8,
        }),
        usage_source: Some(UsageSource::Provider),
        cost: Some(MicroUsd(198)),
        outcome: Some("ok"),
        status: Some(200),
        finish_reason: Some("stop".to_owned()),
        latency: Some(Duration::from_micros(1_234_567)),
        time_to_first: Some(Duration::from_micros(98_765)),
        redactions: Some(r#"{"aws":2}"#.to_owned()),
        detail: Some("all is well".to_owned()),
        run_id: Some("run-7".to_owned()),
        tool: Some("fleet_ps".to_owned()),
        capability: Vocabulary::new(["model:reasoning"]).get("model:reasoning"),
        input: Some(ContentDigest { hash: [0xab; 32], bytes: 70_000 }),
        output: Some(ContentDigest { hash: [0x0c; 32], bytes: 0 }),
        ..intent.follow_up(EntryKind::Settle)
    }
}

pub fn denial() -> Entry {
    let mut entry = Entry::new(EntryKind::Denied, "create_chat_completion", "req-1");
    entry.outcome = Some("missing_token");
    entry.status = Some(401);
    entry
}

/// What the tests compare of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub id: String,
    pub call_id: Option<String>,
    pub kind: String,
    pub outcome: Option<String>,
    pub detail: Option<String>,
}

impl From<&Entry> for Line {
    fn from(entry: &Entry) -> Self {
        Self {
            id: entry.id.to_string(),
            call_id: entry.call_id.map(|id| id.to_string()),
            kind: entry.kind.as_str().to_owned(),
            outcome: entry.outcome.map(str::to_owned),
            detail: entry.detail.clone(),
        }
    }
}

impl From<StoredEntry> for Line {
    fn from(entry: StoredEntry) -> Self {
        let StoredEntry { id, call_id, kind, outcome, detail, .. } = entry;
        Self { id, call_id, kind, outcome, detail }
    }
}

impl From<&Record<'_>> for Line {
    fn from(record: &Record<'_>) -> Self {
        let text = |name| record.get(name).text().map(str::to_owned);
        Self {
            id: text("id").expect("an id"),
            call_id: text("call_id"),
            kind: text("kind").expect("a kind"),
            outcome: text("outcome"),
            detail: text("detail"),
        }
    }
}

/// Entries as the spool gives them to a sink, in a chain of their own.
pub struct Batch(Vec<(Link, Vec<u8>)>);

impl Batch {
    pub fn of(entries: &[Entry]) -> Self {
        let mut chain = Chain::after(Link::origin(uuid::Uuid::now_v7()));
        let linked = |entry| {
            let (link, record) = chain.link(|to| encode(entry, to));
            (*link, record.to_vec())
        };
        Self(entries.iter().map(linked).collect())
    }

    pub fn linked(&self) -> Vec<Linked<'_>> {
        fn linked((link, record): &(Link, Vec<u8>)) -> Linked<'_> {
            Linked { link: *link, record: Record::decode(record).unwrap() }
        }
        self.0.iter().map(linked).collect()
    }
}

/// Gives entries to a sink.
pub async fn append(sink: &dyn AuditSink, entries: &[Entry]) -> Result<(), SinkError> {
    sink.append(&Batch::of(entries).linked()).await
}

/// The kinds of the rows of one call, in order.
pub fn kinds_of(call: &Entry, lines: &[Line]) -> Vec<String> {
    let call_id = call.call_id.map(|id| id.to_string());
    lines.iter().filter(|line| line.call_id == call_id).map(|line| line.kind.clone()).collect()
}
