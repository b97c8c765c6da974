//! The open loop: a request leaves when its time has come, whatever became of the last one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, interval},
};

use super::{
    all,
    connection::{Connection, Requests},
};
use crate::{Outcome, payload::Ask, plan::Tally};

/// A target that lets more requests than this pile up does not keep up with the rate.
const MAX_IN_FLIGHT: usize = 1_024;

#[derive(Clone, Copy)]
pub struct Rate {
    pub per_second: u32,
    pub requests: u64,
}

pub async fn run(
    target: SocketAddr,
    connections: Vec<Connection>,
    ask: Ask,
    asked: &Requests,
    rate: Rate,
) -> Outcome<Tally> {
    let idle = Arc::new(Mutex::new(connections));
    let started = Instant::now();
    let mut ticks = interval(Duration::from_secs(1) / rate.per_second);
    let mut calls = JoinSet::new();
    let mut receipts = Vec::new();
    for nth in 0..rate.requests {
        ticks.tick().await;
        while let Some(ended) = calls.try_join_next() {
            receipts.push(ended??);
        }
        if calls.len() >= MAX_IN_FLIGHT {
            return Err(format!("{MAX_IN_FLIGHT} requests in flight: the rate is too high").into());
        }
        let request = asked.nth(usize::try_from(nth)?);
        let idle = Arc::clone(&idle);
        calls.spawn(async move {
            let unused = idle.lock().await.pop();
            let mut connection = match unused {
                Some(connection) => connection,
                None => Connection::open(target).await?,
            };
            let receipt = connection.ask(ask, request).await?;
            idle.lock().await.push(connection);
            Outcome::Ok(receipt)
        });
    }
    receipts.extend(all(calls).await?);
    Ok(Tally::of(&receipts, started.elapsed()))
}
