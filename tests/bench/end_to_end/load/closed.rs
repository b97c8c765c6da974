//! The closed loop: as much as the target takes, over a fixed number of connections.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    all,
    connection::{Connection, Requests},
};
use crate::{Outcome, payload::Ask, plan::Tally};

pub async fn run(
    connections: Vec<Connection>,
    ask: Ask,
    asked: &Requests,
    requests: u64,
) -> Outcome<Tally> {
    let left = Arc::new(AtomicU64::new(requests));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for (nth, mut connection) in connections.into_iter().enumerate() {
        let (request, left) = (asked.nth(nth), Arc::clone(&left));
        workers.spawn(async move {
            let mut receipts = Vec::new();
            while take_one(&left) {
                receipts.push(connection.ask(ask, request.clone()).await?);
            }
            Outcome::Ok(receipts)
        });
    }
    let receipts: Vec<_> = all(workers).await?.into_iter().flatten().collect();
    Ok(Tally::of(&receipts, started.elapsed()))
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
