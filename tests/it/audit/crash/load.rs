//! Callers of every kind, until the gateway is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::task::JoinSet;

use super::gateway::{Gateway, HANG, SLOW};
use crate::support::client::Client;

const CALLERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(20);

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Whole,
    Stream,
    Slow,
    /// It reads two pieces, and is gone.
    HangUp,
}

/// A call that was sent, whatever became of it.
#[derive(Debug, Clone)]
pub struct Sent {
    pub request_id: String,
    pub manner: Manner,
    /// Its answer has come whole, or as far as it was read.
    pub is_answered: bool,
}

pub struct Load {
    answers: Arc<AtomicU64>,
    callers: JoinSet<Vec<Sent>>,
}

impl Load {
    pub fn start(gateway: &Gateway) -> Self {
        let client = Client::new(gateway.process.address()).with_token(gateway.token());
        let answers = Arc::<AtomicU64>::default();
        let mut callers = JoinSet::new();
        for first in 0..CALLERS {
            callers.spawn(call(client.clone(), first, Arc::clone(&answers)));
        }
        Self { answers, callers }
    }

    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Every call that was sent, once the gateway is gone.
    pub async fn end(self) -> Vec<Sent> {
        self.callers.join_all().await.into_iter().flatten().collect()
    }
}

/// Calls one after the other, of one manner after the other.
async fn call(client: Client, first: usize, answers: Arc<AtomicU64>) -> Vec<Sent> {
    const MANNERS: [Manner; 4] = [Manner::Whole, Manner::Stream, Manner::Slow, Manner::HangUp];
    let mut sent = Vec::new();
    for manner in MANNERS.into_iter().cycle().skip(first) {
        let request_id = uuid::Uuid::new_v4().simple().to_string();
        let is_answered = make(&client, &request_id, manner).await;
        sent.push(Sent { request_id, manner, is_answered });
        if !is_answered {
            break;
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
    sent
}

async fn make(client: &Client, request_id: &str, manner: Manner) -> bool {
    let content = match manner {
        Manner::Whole | Manner::Stream => "Hi",
        Manner::Slow => SLOW,
        Manner::HangUp => HANG,
    };
    let body = json!({
        "model": "m",
        "stream": manner != Manner::Whole,
        "messages": [{ "role": "user", "content": content }],
    });
    let call = client.post("/v1/chat/completions").header("x-request-id", request_id).json(&body);
    let answer = tokio::time::timeout(PATIENCE, call.try_send()).await.expect("an answer, or none");
    let Ok(answer) = answer else { return false };
    let status = answer.status;
    let mut events = answer.events();
    if manner == Manner::HangUp && status == 200 {
        for _ in 0..2 {
            if events.next_event(PATIENCE).await.is_none() {
                return false;
            }
        }
        return true;
    }
    while events.next_event(PATIENCE).await.is_some() {}
    if status != 200 {
        let said = String::from_utf8_lossy(&events.received);
        panic!("no call fails that need not: {status}: {said}");
    }
    events.broken.is_none()
}
