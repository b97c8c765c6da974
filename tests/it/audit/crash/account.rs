//! What must be there in the end, as those saw it who were not killed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use nix::sys::signal::Signal;
use tollgate::audit::{StoredEntry, UNKNOWN};

use super::{
    gateway::{Gateway, Open},
    load::{Manner, Sent},
};
use crate::support::client::eventually;

const PATIENCE: Duration = Duration::from_secs(30);
/// Nine tokens in at 1 USD a million, two out at 2.
const ANSWER_MICRO_USD: u64 = 13;
/// Of a call whose caller hung up: at most two tokens out, and by the gateway's own count of what came
/// in, which is corrected as it learns. It has told nobody but the ledger.
const COUNTED_MICRO_USD: (u64, u64) = (1, 40);

#[derive(Default)]
pub struct Account {
    /// By request id.
    sent: HashMap<String, Sent>,
    /// What was open in the ledger when the gateway was killed, by call id.
    open: HashMap<String, Open>,
}

impl Account {
    /// After a kill.
    pub fn note(&mut self, gateway: &Gateway, sent: Vec<Sent>) {
        self.sent.extend(sent.into_iter().map(|sent| (sent.request_id.clone(), sent)));
        self.open.extend(gateway.open_reservations());
    }

    pub fn calls(&self) -> usize {
        self.sent.len()
    }

    /// Waits until the last life has put everything in order, and looks at all of it.
    pub async fn expect_all_in_order(&self, gateway: &mut Gateway) {
        gateway.process.until_shipped().await;
        eventually(PATIENCE, async || {
            let rows = gateway.rows().await;
            let ends = rows.iter().filter(|row| is_end(row));
            let ended: HashSet<_> = ends.filter_map(|row| row.call_id.as_deref()).collect();
            rows.iter()
                .filter(|row| row.kind == "intent")
                .all(|row| row.call_id.as_deref().is_some_and(|id| ended.contains(id)))
        })
        .await;
        let rows = gateway.rows().await;
        let unknown = self.expect_one_end_each(gateway, &rows);
        self.expect_spent(gateway, &rows).await;
        gateway.process.signal(Signal::SIGTERM);
        let status = gateway.process.ended().await;
        assert!(status.success(), "{status}: {}", gateway.process.log());
        let verified = gateway.verify();
        assert!(verified.status.success(), "{verified:?}");
        let said = String::from_utf8_lossy(&verified.stdout);
        println!("{} rows, {unknown} unknown; verify: {}", rows.len(), said.trim());
    }

    /// Of each call that the provider saw, and of each that has an intent. Returns how many ended
    /// nobody knows how.
    fn expect_one_end_each(&self, gateway: &Gateway, rows: &[StoredEntry]) -> usize {
        let mut calls: BTreeMap<&str, Vec<&StoredEntry>> = BTreeMap::new();
        for row in rows {
            calls.entry(&row.request_id).or_default().push(row);
        }
        let mut seen = HashSet::new();
        for request in gateway.upstream.requests() {
            let id = request.header("x-request-id").expect("it goes on to the provider").to_owned();
            assert!(calls.contains_key(&*id), "{id} left and is not in the trail");
            assert!(seen.insert(id), "a call left twice");
        }
        let mut unknown = 0;
        for (id, rows) in &calls {
            let kinds: Vec<_> = rows.iter().map(|row| &*row.kind).collect();
            assert!(kinds.len() == 2 && kinds[0] == "intent" && is_end(rows[1]), "{id}: {kinds:?}");
            assert_eq!(rows[0].call_id, rows[1].call_id);
            let outcome = rows[1].outcome.as_deref();
            unknown += usize::from(outcome == Some(UNKNOWN));
            let sent = &self.sent[*id];
            let expected: &[&str] = match sent.manner {
                Manner::HangUp => &["canceled", UNKNOWN],
                _ => &["ok", UNKNOWN, "canceled"],
            };
            assert!(
                outcome.is_some_and(|outcome| expected.contains(&outcome)),
                "{sent:?}: {rows:?}"
            );
        }
        for sent in self.sent.values().filter(|sent| sent.is_answered) {
            assert!(calls.contains_key(&*sent.request_id), "{sent:?} has no intent");
        }
        unknown
    }

    /// What was served and what was lost comes to what the ledger says.
    async fn expect_spent(&self, gateway: &Gateway, rows: &[StoredEntry]) {
        let seen: HashSet<String> = gateway
            .upstream
            .requests()
            .iter()
            .filter_map(|request| request.header("x-request-id").map(str::to_owned))
            .collect();
        let (mut least, mut most) = (0, 0);
        for row in rows.iter().filter(|row| is_end(row)) {
            let sent = &self.sent[&row.request_id];
            let open = row.call_id.as_ref().and_then(|id| self.open.get(id));
            let cost = row.cost_micro_usd.map_or(0, |cost| u64::try_from(cost).unwrap());
            let (low, high) = match (row.outcome.as_deref(), open) {
                (Some("ok"), _) => {
                    assert_eq!(cost, ANSWER_MICRO_USD, "{row:?}");
                    (cost, cost)
                }
                // Charged as reserved if it had left, else given back.
                (Some(UNKNOWN), Some(open)) if open.has_left => (open.micro_usd, open.micro_usd),
                (Some(UNKNOWN), Some(_)) => (0, 0),
                // Not reserved yet, or settled: then as served.
                (Some(UNKNOWN), None) if !seen.contains(&row.request_id) => (0, 0),
                (Some(UNKNOWN), None) if sent.manner == Manner::HangUp => COUNTED_MICRO_USD,
                (Some(UNKNOWN), None) => (ANSWER_MICRO_USD, ANSWER_MICRO_USD),
                _ => (cost, cost),
            };
            least += low;
            most += high;
        }
        let spent = gateway.spent().await;
        println!("spent {spent:?}, from {least} to {most} µUSD by the calls");
        assert_eq!(spent.reserved, 0, "nothing is open");
        assert!((least..=most).contains(&spent.used), "{least} to {most}: {spent:?}");
    }
}

fn is_end(row: &StoredEntry) -> bool {
    matches!(&*row.kind, "settle" | "canceled" | "denied")
}
