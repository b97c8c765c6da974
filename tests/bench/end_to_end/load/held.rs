//! Streams that are opened and then stay as they are.

use std::{net::SocketAddr, sync::Arc};

use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{
    Response, all,
    answer::read,
    connection::{Connection, Requests},
};
use crate::{Outcome, payload::Ask, plan::Tally};

/// Streams being opened at once: fewer than a listener's queue holds.
const OPENING: usize = 64;

/// Returns the streams as well: they close when dropped.
pub async fn run(
    target: SocketAddr,
    asked: &Requests,
    streams: usize,
) -> Outcome<(Tally, Vec<(Connection, Response)>)> {
    let opening = Arc::new(Semaphore::new(OPENING));
    let started = Instant::now();
    let mut opened = JoinSet::new();
    for nth in 0..streams {
        let (request, turn) = (asked.nth(nth), Arc::clone(&opening).acquire_owned().await?);
        opened.spawn(async move {
            let began = Instant::now();
            let mut connection = Connection::open(target).await?;
            let mut response = connection.send(request).await?;
            let receipt = read(&mut response, Ask::IDLE, began).await?;
            drop(turn);
            Outcome::Ok((receipt, (connection, response)))
        });
    }
    let (receipts, held): (Vec<_>, _) = all(opened).await?.into_iter().unzip();
    Ok((Tally::of(&receipts, started.elapsed()), held))
}
