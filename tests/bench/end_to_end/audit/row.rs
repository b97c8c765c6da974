//! Rows as common calls leave them: an intent and its end each.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
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
    /// When the first call was, and how much later each is than the one before.
    since: Timestamp,
    step: SignedDuration,
}

impl Rows {
    /// All of now.
    pub fn new() -> Self {
        let chain = Chain::after(Link::origin(uuid::Uuid::now_v7()));
        let callers = (0..CALLERS).map(caller).collect();
        let (since, step) = (Timestamp::now(), SignedDuration::ZERO);
        Self { chain, callers, calls: 0, since, step }
    }

    /// So many of the last day.
    pub fn of_a_day(rows: u32) -> Self {
        let day = SignedDuration::from_hours(24);
        let step = day.checked_div((rows / 2).max(1).cast_signed()).unwrap_or_default();
        Self { since: Timestamp::now() - day, step, ..Self::new() }
    }

    /// [`BATCH`] of them.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            self.calls += 1;
            self.since += self.step;
            for mut entry in entries(&self.callers[self.calls % CALLERS], self.calls) {
                entry.time = self.since;
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

/// An intent and its end. One call in 500 is by `fleet:write`, one in 5,000 of a tool.
pub fn entries(caller: &Arc<Caller>, number: usize) -> [Entry; 2] {
    let mut intent = Entry::new(EntryKind::Intent, "create_chat_completion", "req-0af76519");
    intent.call_id = Some(CallId::generate());
    intent.caller = Some(Arc::clone(caller));
    let by = if number.is_multiple_of(500) { "fleet:write" } else { "model:reasoning" };
    intent.capability = caller.capabilities.iter().find(|name| name.as_str() == by).cloned();
    intent.tool = number.is_multiple_of(5_000).then(|| "arcadedb".to_owned());
    intent.run_id = Some(format!("run-{}", number / 50));
    intent.required = Some("model:reasoning".to_owned());
    intent.model = Some(format!("model-{}", number % 8));
    intent.client_address = Some([10, 0, 0, 1].into());
    intent.trace_id = Some(trace(number));
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

/// The trace of a call.
pub const fn trace(number: usize) -> u128 {
    (number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

pub fn caller(number: usize) -> Arc<Caller> {
    let vocabulary = Vocabulary::new(["fleet:write", "model:reasoning"]);
    Arc::new(Caller {
        subject: format!("user-{number}"),
        issuer: "https://bff.example.com".to_owned(),
        tier: "pro".to_owned(),
        capabilities: vocabulary.names().filter_map(|name| vocabulary.get(name)).collect(),
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
