//! Rows as common calls leave them: an intent and its end each.

use std::{sync::Arc, time::Duration};

use tollgate::{
    audit::{Chain, ContentDigest, Entry, EntryKind, KeptContent, Link, Linked, Record, encode},
    domain::{CallId, Caller, MicroUsd, TrustLevel, Usage, UsageSource, Vocabulary},
};

/// As many as the shipper sends at once.
pub const BATCH: usize = tollgate::audit::spool::BATCH_RECORDS;
const CALLERS: usize = 50;

/// Writes rows without end, all of one chain.
pub struct Rows {
    chain: Chain,
    callers: Vec<Arc<Caller>>,
    calls: usize,
}

impl Rows {
    pub fn new() -> Self {
        let chain = Chain::after(Link::origin(uuid::Uuid::now_v7()));
        Self { chain, callers: (0..CALLERS).map(caller).collect(), calls: 0 }
    }

    /// [`BATCH`] of them.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            self.calls += 1;
            for entry in entries(&self.callers[self.calls % CALLERS], self.calls) {
                let (link, record) = self.chain.link(|to| encode(&entry, to));
                batch.push((*link, record.to_vec()));
            }
        }
        Batch(batch)
    }
}

/// Encoded rows.
pub struct Batch(Vec<(Link, Vec<u8>)>);

impl Batch {
    pub fn linked(&self) -> Vec<Linked<'_>> {
        self.0
            .iter()
            .filter_map(|(link, record)| {
                let record = Record::decode(record).ok()?;
                Some(Linked { link: *link, record, content: KeptContent::default() })
            })
            .collect()
    }
}

/// An intent and its end.
pub fn entries(caller: &Arc<Caller>, number: usize) -> [Entry; 2] {
    let mut intent = Entry::new(EntryKind::Intent, "create_chat_completion", "req-0af76519");
    intent.call_id = Some(CallId::generate());
    intent.caller = Some(Arc::clone(caller));
    intent.capability = caller.capabilities.iter().next().cloned();
    intent.required = Some("model:reasoning".to_owned());
    intent.model = Some(format!("model-{}", number % 8));
    intent.client_address = Some([10, 0, 0, 1].into());
    intent.trace_id = Some(uuid::Uuid::new_v4().as_u128());
    let mut end = intent.follow_up(EntryKind::Settle);
    (end.provider, end.provider_model) = (Some("cerebras".to_owned()), Some("gpt-oss".to_owned()));
    end.usage = Some(Usage { input_tokens: 312, output_tokens: 118, ..Usage::default() });
    end.usage_source = Some(UsageSource::Provider);
    end.cost = Some(MicroUsd(198));
    (end.latency, end.time_to_first) =
        (Some(Duration::from_secs(1)), Some(Duration::from_millis(98)));
    (end.outcome, end.status) = (Some("ok"), Some(200));
    end.finish_reason = Some("stop".to_owned());
    end.input = Some(digest(number));
    end.output = Some(digest(!number));
    [intent, end]
}

pub fn caller(number: usize) -> Arc<Caller> {
    let vocabulary = Vocabulary::new(["model:reasoning"]);
    Arc::new(Caller {
        subject: format!("user-{number}"),
        issuer: "https://bff.example.com".to_owned(),
        tier: "pro".to_owned(),
        capabilities: vocabulary.get("model:reasoning").into_iter().collect(),
        agent: Some(format!("agent-{}", number % 5)),
        trust: TrustLevel::L1,
        extra: [("cost_center".to_owned(), (number % 3).to_string())].into(),
    })
}

fn digest(number: usize) -> ContentDigest {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    ContentDigest { hash, bytes: 1_000 }
}
