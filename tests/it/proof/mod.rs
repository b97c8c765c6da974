//! Nothing is overspent, whatever happens: two gateways, 200 callers of one budget, clients that
//! hang up, and a gateway that is killed. What the ledger says is recomputed from what the mock
//! provider has served.
//!
//! Every call's true cost is known to the last token: the provider's account is exact, and what
//! the gateway counts for a call that was cut is made to be what the provider counts. One whose gateway was killed after the call
//! had left, and before it was settled, is charged what was reserved: never less than it has cost.

mod fleet;
mod plan;

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::{sync::Barrier, task::JoinSet};
use tollgate::{
    audit::StoredEntry,
    budget::{Bucket, Ledger, Limit, Measure, Period, RedisLedger, Scope, Standing},
};

use self::{
    fleet::{AGENT, Budget, Fleet, SLOTS, TIER, audit_rows},
    plan::{
        Account, Cost, DENSE, DENSE_INPUT_TOKENS, INPUT_TOKENS, MAX_TOKENS, Plan, RESERVED, Way,
    },
};
use crate::support::{
    app::ISSUER,
    client::{Client, Events, RawConnection, eventually},
};

const PATH: &str = "/v1/chat/completions";
const CALLERS: usize = 200;
/// Some are refused, so that the budget is busy to the end.
const ATTEMPTS: usize = 5;
/// Streams that the gateway which is killed has open then.
const HELD: u64 = 10;
/// The kill comes when the provider has seen as many calls.
const KILL_AT: usize = 100;
/// Debug builds on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a call looked to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Seen {
    Answered,
    HungUp,
    /// 429 `budget_exhausted`.
    Exhausted,
    /// No answer, or not all of it, or that the store was too slow.
    Broken,
}

fn headed(plan: &Plan, client: &Client) -> crate::support::client::Call {
    let call = client.post(PATH).header("x-request-id", &plan.id());
    call.header("content-type", "application/json").body(plan.body())
}

/// Reads the pieces that the provider makes. `false`: they broke off.
async fn read_pieces(events: &mut Events, plan: &Plan) -> bool {
    let mut pieces = 0;
    while pieces < plan.pieces {
        let Some(event) = events.next_event(PATIENCE).await else { return false };
        let data = String::from_utf8_lossy(&event.data);
        pieces += u64::from(data.contains(r#""content":" the""#));
    }
    true
}

/// One that is let go of before the provider has said anything.
async fn cut_at_once(plan: &Plan, address: SocketAddr, token: &str, account: &Account) -> Seen {
    let Ok(mut connection) = RawConnection::try_open(address).await else { return Seen::Broken };
    let (id, body) = (plan.id(), plan.body());
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\nx-request-id: {id}\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    if connection.send(request.as_bytes()).await.is_err() {
        return Seen::Broken;
    }
    tokio::select! {
        answer = connection.read_to_close(PATIENCE) => {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            if answer.contains("budget_exhausted") { Seen::Exhausted } else { Seen::Broken }
        }
        () = account.until(plan) => Seen::HungUp,
    }
}

/// One call as its plan is, on one of the gateways.
async fn call(plan: &Plan, address: SocketAddr, token: &str, account: &Account) -> Seen {
    if plan.way == Way::CutAtOnce {
        return cut_at_once(plan, address, token, account).await;
    }
    let client = Client::new(address).with_token(token);
    let sent = tokio::time::timeout(PATIENCE, headed(plan, &client).try_send()).await;
    let Ok(response) = sent.expect("an answer in time") else { return Seen::Broken };
    let status = response.status.as_u16();
    let mut events = response.events();
    if status == 200 && plan.way == Way::CutInTheMiddle {
        return if read_pieces(&mut events, plan).await { Seen::HungUp } else { Seen::Broken };
    }
    while events.next_event(PATIENCE).await.is_some() {}
    let body = String::from_utf8_lossy(&events.received);
    match status {
        200 if events.broken.is_none() => Seen::Answered,
        429 if body.contains("budget_exhausted") => Seen::Exhausted,
        200 | 503 => Seen::Broken,
        _ => panic!("{plan:?}: {status} {body}"),
    }
}

/// The streams that are open when their gateway is killed.
async fn hold(fleet: &Fleet) -> Vec<Events> {
    let client = fleet.client(fleet.first.address());
    let mut held = Vec::new();
    for number in 0..HELD {
        let plan = Plan::held(number);
        let mut events = headed(&plan, &client).send().await.events();
        assert!(read_pieces(&mut events, &plan).await, "{plan:?}");
        held.push(events);
    }
    held
}

/// All callers at once, and the kill among them.
async fn load(fleet: &mut Fleet, first_number: u64) -> HashMap<Seen, usize> {
    let addresses = [fleet.second.address(), fleet.first.address()];
    let numbers = Arc::new(AtomicU64::new(first_number));
    let is_killed = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(CALLERS));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (token, account) = (fleet.token(caller), fleet.account.clone());
        let (numbers, is_killed) = (Arc::clone(&numbers), Arc::clone(&is_killed));
        let start = Arc::clone(&start);
        callers.spawn(async move {
            start.wait().await;
            let mut seen = Vec::with_capacity(ATTEMPTS);
            for _ in 0..ATTEMPTS {
                let plan = Plan::of(numbers.fetch_add(1, Ordering::Relaxed));
                let to_first = plan.to_first && !is_killed.load(Ordering::Relaxed);
                let address = addresses[usize::from(to_first)];
                seen.push(call(&plan, address, &token, &account).await);
            }
            seen
        });
    }
    let kill_at = tokio::time::timeout(PATIENCE, fleet.account.until_count(KILL_AT));
    kill_at.await.expect("calls come through");
    fleet.first.signal(Signal::SIGKILL);
    is_killed.store(true, Ordering::Relaxed);
    fleet.first.ended().await;
    let mut seen = HashMap::new();
    for one in callers.join_all().await.into_iter().flatten() {
        *seen.entry(one).or_default() += 1;
    }
    seen
}

fn buckets(budget: Budget) -> [Bucket; 3] {
    let agent = Scope::Agent { issuer: ISSUER.to_owned(), agent: AGENT.to_owned() };
    let window = |measure, limit| Limit::Window { measure, period: Period::Day, limit };
    let of_model = Scope::TierModel { tier: TIER.to_owned(), model: "m".to_owned() };
    [
        Bucket::new(
            Scope::Tier { tier: TIER.to_owned() },
            window(Measure::MicroUsd, budget.micro_usd),
        ),
        Bucket::new(agent, window(Measure::Tokens, budget.tokens)),
        Bucket::new(of_model, Limit::Slots(SLOTS)),
    ]
}

async fn standings(ledger: &RedisLedger, budget: Budget) -> [Standing; 3] {
    let buckets = buckets(budget);
    let standings = ledger.standings(&buckets.each_ref()).await.expect("standings");
    standings.try_into().expect("one for each")
}

/// The calls that a process has begun, by their reservation, and those that it has ended.
fn calls_of(rows: &[StoredEntry]) -> (HashMap<String, String>, HashSet<String>) {
    let call = |row: &StoredEntry| row.call_id.clone();
    let (intents, ends): (Vec<_>, Vec<_>) =
        rows.iter().filter(|row| row.call_id.is_some()).partition(|row| row.kind == "intent");
    let intents = intents.into_iter();
    let begun = intents.filter_map(|row| Some((call(row)?, row.request_id.clone())));
    (begun.collect(), ends.into_iter().filter_map(call).collect())
}

/// Every call that the gateway which lives has begun is ended: settled, and then recorded.
async fn until_settled(fleet: &Fleet) -> HashMap<String, String> {
    eventually(PATIENCE, async || fleet.upstream.open() == 0).await;
    let mut begun = HashMap::new();
    eventually(PATIENCE, async || {
        let ended;
        fleet.second.until_shipped().await;
        (begun, ended) = calls_of(&audit_rows(&fleet.second).await);
        begun.keys().all(|call| ended.contains(call))
    })
    .await;
    begun
}

/// Each row of the gateway which lives says what its call has cost.
async fn check_rows(fleet: &Fleet, served: &HashMap<String, Plan>) {
    for row in audit_rows(&fleet.second).await {
        let Some(cost) = row.cost_micro_usd else { continue };
        let plan = served.get(&row.request_id).expect("only what was served has cost something");
        let wanted = plan.cost().micro_usd;
        assert_eq!(u64::try_from(cost), Ok(wanted), "{plan:?}: {row:?}");
    }
}

/// The day's budget must not begin anew in the middle.
async fn not_at_midnight() {
    let is_near = || jiff::Timestamp::now().as_second().rem_euclid(86_400) > 86_400 - 50;
    eventually(Duration::from_secs(55), async || !is_near()).await;
}

/// The calls are those from this number on. Returns how many tokens were overspent.
async fn nothing_is_overspent(budget: Budget, first_number: u64) -> u64 {
    not_at_midnight().await;
    let mut fleet = Fleet::start(budget).await;
    let held = hold(&fleet).await;
    let seen = load(&mut fleet, first_number).await;
    drop(held);
    for one in [Seen::Answered, Seen::Exhausted, Seen::Broken] {
        assert!(seen.contains_key(&one), "{one:?} is among what was tried: {seen:?}");
    }
    assert_eq!(seen.contains_key(&Seen::HungUp), first_number < DENSE, "{seen:?}");

    let mut begun = until_settled(&fleet).await;
    fleet.first.ship_spool("audit.db").await;
    begun.extend(calls_of(&audit_rows(&fleet.first).await).0);
    let ledger = RedisLedger::new(&fleet.redis.url()).expect("a ledger");
    let (mut open, served) = (fleet.expire(), fleet.account.all());
    // That a spent budget was told of is marked by a reservation too; the kill may leave it open.
    open.retain(|_, it| it.reserved.micro_usd > 0);
    let left = open.iter().filter(|(_, it)| it.has_left);
    let left: HashMap<&String, Cost> = left.map(|(call, it)| (&begun[call], it.reserved)).collect();
    assert!(left.len() >= usize::try_from(HELD).expect("a few"), "{open:?}");
    for (call, it) in &open {
        assert!(it.has_left || !served.contains_key(&begun[call]), "it leaves once it has said so");
        assert_eq!(it.reserved.micro_usd, RESERVED.micro_usd);
        assert!(it.reserved.tokens == RESERVED.tokens || first_number >= DENSE);
    }

    eventually(PATIENCE, async || {
        ledger.renew(&[]).await.expect("renewed");
        fleet.expire().is_empty()
    })
    .await;

    let truly: Cost = served.values().map(Plan::cost).sum();
    let settled = served.iter().filter(|(id, _)| !left.contains_key(id));
    let charged: Cost = settled.map(|(_, plan)| plan.cost()).chain(left.values().copied()).sum();
    let [money, tokens, slots] = standings(&ledger, budget).await;
    let shown = format!("{} served, {} open at the end, {seen:?}", served.len(), open.len());
    assert_eq!((money.used, tokens.used), (charged.micro_usd, charged.tokens), "{shown}");
    assert_eq!((money.reserved, tokens.reserved, slots.used), (0, 0, 0), "{shown}");
    assert!(truly.micro_usd <= money.used && money.used <= budget.micro_usd, "{shown}");
    check_rows(&fleet, &served).await;
    let overspent = tokens.used.saturating_sub(budget.tokens);
    spend_the_rest(&fleet, &ledger, budget, first_number).await;
    overspent
}

/// What was given back can be spent, to the last call that has room, and no further.
async fn spend_the_rest(fleet: &Fleet, ledger: &RedisLedger, budget: Budget, first_number: u64) {
    let (address, token) = (fleet.second.address(), fleet.token(0));
    let mut numbers = first_number + 50_000..;
    eventually(PATIENCE, async || {
        let plan = Plan::of(numbers.next().expect("endless"));
        call(&plan, address, &token, &fleet.account).await == Seen::Exhausted
    })
    .await;
    until_settled(fleet).await;
    let [money, tokens, _] = standings(ledger, budget).await;
    assert!(money.used <= budget.micro_usd, "{money:?}");
    assert!(tokens.used <= budget.tokens || first_number >= DENSE, "{tokens:?}");
    let is_spent =
        money.remaining < RESERVED.micro_usd || tokens.remaining < DENSE_INPUT_TOKENS + MAX_TOKENS;
    assert!(is_spent, "{money:?} {tokens:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_that_two_gateways_share_is_never_overspent() {
    nothing_is_overspent(Budget { micro_usd: 50_000, tokens: 1_000_000_000 }, HELD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_two_gateways_share_are_not_overspent_where_estimates_are_true() {
    let budget = Budget { micro_usd: 1_000_000_000, tokens: 40_000 };
    assert_eq!(nothing_is_overspent(budget, HELD).await, 0);
}

/// Tokens are an estimate: each call that runs may spend what its provider counts beyond it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_overspent_by_no_more_than_the_running_calls_estimates_were_short_of() {
    let budget = Budget { micro_usd: 1_000_000_000, tokens: 40_000 };
    let overspent = nothing_is_overspent(budget, DENSE).await;
    let running = u64::try_from(CALLERS).expect("a few");
    let bound = running * (DENSE_INPUT_TOKENS - INPUT_TOKENS);
    assert!(overspent <= bound, "{overspent} of {bound}");
}
