//! A provider that misbehaves to order.
//!
//! It writes HTTP/1.1 by hand on a raw socket, so that any byte can be wrong, late or missing, and
//! it watches its clients while it writes, so that a test can see when one let go.
//!
//! ```ignore
//! let upstream = MockUpstream::start().await;
//! upstream.enqueue(openai::text_stream(["Hel", "lo"]).then(Step::Stall));
//! // … a call through the gateway, which hangs up …
//! let counts = upstream.until(|counts| counts.aborted == 1).await;
//! ```

mod connection;
pub mod fault;
pub mod openai;
mod request;
mod script;
mod unreachable;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};

pub use self::{
    request::Recorded,
    script::{Framing, Script, Step},
    unreachable::Blackhole,
};

/// How long [`MockUpstream::until`] waits before it gives the test up.
const PATIENCE: Duration = Duration::from_secs(5);

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: usize,
    /// Requests read to their end.
    pub requests: usize,
    /// Scripts under way.
    pub open: usize,
    /// Scripts played to their end, be that end good or bad.
    pub served: usize,
    /// Scripts that the client ended by closing its connection.
    pub aborted: usize,
    /// When the client of the last one of those was seen to close.
    pub last_aborted_at: Option<Instant>,
}

type Respond = dyn Fn(&Recorded) -> Script + Send + Sync;

struct State {
    counts: watch::Sender<Counts>,
    requests: Mutex<Vec<Recorded>>,
    queue: Mutex<VecDeque<Script>>,
    respond: Mutex<Arc<Respond>>,
    listening: watch::Sender<bool>,
}

impl State {
    /// Records a request and chooses the answer.
    fn answer(&self, request: Recorded) -> Script {
        let queued = if request.method == "POST" {
            self.queue.lock().expect("not poisoned").pop_front()
        } else {
            None
        };
        let respond = Arc::clone(&self.respond.lock().expect("not poisoned"));
        let script = queued.unwrap_or_else(|| respond(&request));
        self.requests.lock().expect("not poisoned").push(request);
        self.counts.send_modify(|counts| {
            counts.requests += 1;
            counts.open += 1;
        });
        script
    }
}

/// The server. Dropping it closes every connection at once.
pub struct MockUpstream {
    address: SocketAddr,
    state: Arc<State>,
    accepting: AbortHandle,
}

impl MockUpstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            counts: watch::Sender::default(),
            requests: Mutex::default(),
            queue: Mutex::default(),
            respond: Mutex::new(Arc::new(openai::answer)),
            listening: watch::Sender::new(true),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state))).abort_handle();
        Self { address, state, accepting }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer to the next POST that has none queued before it.
    pub fn enqueue(&self, script: Script) {
        self.state.queue.lock().expect("not poisoned").push_back(script);
    }

    /// Answers whatever the queue leaves. From the start: [`openai::answer`].
    pub fn respond_with(&self, respond: impl Fn(&Recorded) -> Script + Send + Sync + 'static) {
        *self.state.respond.lock().expect("not poisoned") = Arc::new(respond);
    }

    /// The requests so far, in the order in which they were read.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.requests.lock().expect("not poisoned").clone()
    }

    /// The one request so far.
    pub fn request(&self) -> Recorded {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "one request was expected: {requests:?}");
        requests.remove(0)
    }

    pub fn counts(&self) -> Counts {
        *self.state.counts.borrow()
    }

    pub fn served(&self) -> usize {
        self.counts().served
    }

    pub fn aborted(&self) -> usize {
        self.counts().aborted
    }

    pub fn open(&self) -> usize {
        self.counts().open
    }

    /// Waits until the counts are as wanted, without polling; gives up after five seconds.
    pub async fn until(&self, wanted: impl Fn(&Counts) -> bool) -> Counts {
        let mut counts = self.state.counts.subscribe();
        let seen = tokio::time::timeout(PATIENCE, counts.wait_for(|counts| wanted(counts))).await;
        match seen {
            Ok(counts) => *counts.expect("the sender lives in self"),
            Err(elapsed) => panic!("{elapsed}; the upstream got as far as {:?}", self.counts()),
        }
    }

    /// From now on connections are refused; idle ones are closed, answers under way go on.
    pub async fn stop_listening(&self) {
        self.state.listening.send_replace(false);
        let refused = || async { tokio::net::TcpStream::connect(self.address).await.is_err() };
        while !refused().await {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for MockUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut listening = state.listening.subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = listening.wait_for(|listening| !listening) => break,
            Ok((stream, _)) = listener.accept() => {
                state.counts.send_modify(|counts| counts.connections += 1);
                connections.spawn(connection::serve(stream, Arc::clone(&state)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
