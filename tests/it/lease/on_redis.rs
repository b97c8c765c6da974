//! Leases on a real Redis, by its clock and ours as they run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tollgate::{
    budget::{Charge, LeasedLedger, Ledger, MAX_LEASE, Measure, RedisLedger, Spent},
    domain::CallId,
};

use super::{rate, requests};
use crate::support::{client::eventually, redis::RedisServer};

const PROCESSES: u64 = 2;
const CALLERS: u64 = 8;

fn process(server: &RedisServer) -> Arc<LeasedLedger> {
    let redis = RedisLedger::new(&server.url()).expect("a ledger");
    Arc::new(LeasedLedger::new(Arc::new(redis), MAX_LEASE))
}

/// Scripts that the server has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let of_line = |line: &str| {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    info.lines().find_map(of_line).unwrap_or(0)
}

/// Calls from all processes at once, until `is_over` of their count. Returns how many got in.
async fn load(
    processes: &[Arc<LeasedLedger>],
    charge: &Charge,
    is_over: impl Fn(u64) -> bool + Clone + Send + 'static,
) -> u64 {
    let tried = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let ledger = Arc::clone(&processes[usize::from(caller % 2 == 0)]);
        let (charge, tried, is_over) = (charge.clone(), Arc::clone(&tried), is_over.clone());
        callers.spawn(async move {
            let mut admitted = 0;
            while !is_over(tried.fetch_add(1, Ordering::Relaxed)) {
                let id = CallId::generate();
                if ledger.reserve(id, std::slice::from_ref(&charge)).await.is_ok() {
                    ledger.depart(id).await.expect("it may leave");
                    ledger.settle(id, Spent::Reserved).await.expect("settled");
                    admitted += 1;
                }
            }
            admitted
        });
    }
    callers.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_does_not_cost_redis_a_script_for_each_call() {
    let server = RedisServer::start().await;
    let processes: Vec<_> = (0..PROCESSES).map(|_| process(&server)).collect();
    // Nobody is refused: what a lease can't serve is asked of Redis.
    let charge = rate(Measure::Requests, 600_000_000, 600_000_000, 1);
    let admitted = load(&processes, &charge, |tried| tried >= 5_000).await;
    assert_eq!(admitted, 5_000);
    let run = scripts_run(&server);
    // Three scripts a call it is without leases.
    assert!(run < 5_000 * 3 / 10, "{run} scripts were run");
    let (store, bucket) = (RedisLedger::new(&server.url()).expect("a ledger"), &*charge.bucket);
    eventually(Duration::from_secs(5), async || {
        let standing = store.standings(&[bucket]).await.expect("a standing")[0];
        standing.reserved == 0
    })
    .await;
    assert!(processes.iter().all(|ledger| ledger.open() == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_admits_no_more_than_burst_rate_and_a_lease() {
    let server = RedisServer::start().await;
    let processes: Vec<_> = (0..PROCESSES).map(|_| process(&server)).collect();
    let charge = Charge { bucket: rate(Measure::Requests, 60_000, 100, 1).bucket, ..requests() };
    let begun = Instant::now();
    let end = begun + Duration::from_millis(400);
    let admitted = load(&processes, &charge, move |_| Instant::now() >= end).await;
    let millis = u64::try_from(begun.elapsed().as_millis()).expect("a short time") + 1;
    // 1,000 a second: one a millisecond.
    let lease = u64::try_from(MAX_LEASE.as_millis()).expect("a short time");
    assert!(admitted <= 100 + millis + lease, "{admitted} in {millis} ms");
    assert!(admitted >= 100, "a burst gets in: {admitted}");
}
