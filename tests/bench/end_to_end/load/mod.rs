//! The load generator: warms its connections up, waits for the word, works, tells, and holds what
//! is open until standard input closes.

mod answer;
mod closed;
mod connection;
mod held;
mod open;

use std::{io, time::Duration};

use answer::Receipt;
use bytes::Bytes;
use connection::{Connection, Requests};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::{runtime::Runtime, task::JoinSet, time::timeout};

use super::{
    Outcome,
    payload::Ask,
    plan::{GO, Plan, READY, Tally, Work},
};

/// Requests sent over each connection before the load begins.
const WARM_UP: usize = 5;

/// Connections that an open loop begins with.
const OPEN_LOOP_CONNECTIONS: usize = 32;

type Request = http::Request<Full<Bytes>>;
type Response = http::Response<Incoming>;

pub fn run(plan: &str) -> Outcome<()> {
    let plan: Plan = serde_json::from_str(plan)?;
    Runtime::new()?.block_on(async {
        let deadline = Duration::from_secs(plan.deadline_s);
        let connections =
            timeout(deadline, warm(&plan)).await.map_err(|_| "no warm-up in time")??;
        println!("{READY}");
        if !wait_for_go()? {
            return Ok(());
        }
        let work = timeout(deadline, work(&plan, connections));
        let (tally, held) = work.await.map_err(|_| "the load did not end in time")??;
        println!("{}", serde_json::to_string(&tally)?);
        wait_for_end()?;
        drop(held);
        Ok(())
    })
}

/// `false`: the parent is gone.
fn wait_for_go() -> Outcome<bool> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim_end() == GO)
}

fn wait_for_end() -> Outcome<()> {
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

async fn warm(plan: &Plan) -> Outcome<Vec<Connection>> {
    let (ask, connections) = match plan.work {
        // A stream that takes seconds would warm up for too long.
        Work::Closed { ask, connections, .. } if ask == Ask::BURST => (ask, connections),
        Work::Closed { connections, .. } => (Ask::WHOLE, connections),
        Work::Open { ask, .. } => (ask, OPEN_LOOP_CONNECTIONS),
        Work::Held { .. } => (Ask::BURST, OPEN_LOOP_CONNECTIONS),
    };
    let requests = Requests::new(plan, ask)?;
    let mut warming = JoinSet::new();
    for nth in 0..connections {
        let (target, request) = (plan.target, requests.nth(nth));
        warming.spawn(async move {
            let mut connection = Connection::open(target).await?;
            for _ in 0..WARM_UP {
                connection.ask(ask, request.clone()).await?;
            }
            Outcome::Ok(connection)
        });
    }
    all(warming).await
}

async fn work(
    plan: &Plan,
    connections: Vec<Connection>,
) -> Outcome<(Tally, Vec<(Connection, Response)>)> {
    match plan.work {
        Work::Closed { ask, requests, .. } => {
            let asked = Requests::new(plan, ask)?;
            Ok((closed::run(connections, ask, &asked, requests).await?, Vec::new()))
        }
        Work::Open { ask, per_second, requests } => {
            let asked = Requests::new(plan, ask)?;
            let rate = open::Rate { per_second, requests };
            Ok((open::run(plan.target, connections, ask, &asked, rate).await?, Vec::new()))
        }
        Work::Held { streams } => {
            drop(connections);
            held::run(plan.target, &Requests::new(plan, Ask::IDLE)?, streams).await
        }
    }
}

/// Every task's result, or the first failure.
async fn all<T: Send + 'static>(mut tasks: JoinSet<Outcome<T>>) -> Outcome<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(result) = tasks.join_next().await {
        results.push(result??);
    }
    Ok(results)
}

impl Tally {
    fn of(receipts: &[Receipt], elapsed: Duration) -> Self {
        Self {
            requests: receipts.len() as u64,
            events: receipts.iter().map(|receipt| receipt.events).sum(),
            elapsed_ns: nanos(elapsed),
            latencies_ns: receipts.iter().map(|receipt| nanos(receipt.latency)).collect(),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
