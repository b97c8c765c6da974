//! Connections to Redis: a few, shared by all calls, made anew when they break.
//!
//! Nothing here waits without a bound. A store that failed is left alone for a moment and then
//! asked by one command at a time, until it answers.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, ServerErrorKind,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{Call, Failure, LedgerHealth};

/// A call waits for its budget no longer than this: many times what a healthy store takes.
pub const COMMAND_TIMEOUT: Duration = Duration::from_millis(250);
/// With DNS, TLS and a password.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a store that failed is left alone.
const REST: Duration = Duration::from_millis(100);
/// Each carries many commands at once; a second and third keep one lost packet from holding up all.
const CONNECTIONS: usize = 3;
/// So many commands may wait for answers: at a healthy store's speed, some 50 ms of work.
const MAX_PENDING: usize = 4_096;

/// A few connections to one Redis.
pub(super) struct Pool {
    client: Client,
    places: [Arc<watch::Sender<Link>>; CONNECTIONS],
    turn: AtomicUsize,
    pending: Semaphore,
    /// After a failure: not before then.
    rests_until: Mutex<Option<Instant>>,
    health: Arc<LedgerHealth>,
}

/// What a script returned.
pub(super) struct Reply {
    pub(super) numbers: Vec<i64>,
    /// It was sent before, and what became of that is not known.
    pub(super) is_second: bool,
}

/// What is in a connection's place.
#[derive(Clone)]
enum Link {
    None,
    Connecting,
    Up(Arc<MultiplexedConnection>),
    Failed(Failure),
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it knows the password.
        f.debug_struct("Pool").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(client: Client, health: Arc<LedgerHealth>) -> Self {
        Self {
            client,
            places: std::array::from_fn(|_| Arc::new(watch::Sender::new(Link::None))),
            turn: AtomicUsize::new(0),
            pending: Semaphore::new(MAX_PENDING),
            rests_until: Mutex::new(None),
            health,
        }
    }

    pub(super) const fn health(&self) -> &Arc<LedgerHealth> {
        &self.health
    }

    /// Begins to connect, so that the first call need not.
    pub(super) fn warm(&self) {
        for place in &self.places {
            connect(place, &self.client);
        }
    }

    /// Runs a script.
    pub(super) async fn run(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let result = self.run_bounded(call).await;
        match &result {
            Ok(_) => {
                self.wake();
                self.health.note_answer();
            }
            Err(failure) => {
                if failure.is_of_the_store() {
                    self.rest(REST);
                }
                self.health.note_failure(*failure);
            }
        }
        result
    }

    async fn run_bounded(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let _permit = self.pending.try_acquire().map_err(|_| Failure::Busy)?;
        if !self.is_awake() {
            return Err(Failure::Resting);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let place = &self.places[turn % CONNECTIONS];
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let first = self.try_run(place, call, deadline).await;
        // A connection that was idle when the store restarted tells so only now. Whatever became of
        // the command: under its id, it does nothing twice.
        let is_second = first == Err(Failure::Connection) && Instant::now() < deadline;
        let numbers = if is_second { self.try_run(place, call, deadline).await } else { first }?;
        Ok(Reply { numbers, is_second })
    }

    async fn try_run(
        &self,
        place: &Arc<watch::Sender<Link>>,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Vec<i64>, Failure> {
        let connecting = timeout_at(deadline, self.connection(place));
        let connection = connecting.await.map_err(|_| Failure::Timeout)??;
        let answer = timeout_at(deadline, self.evaluate(&connection, call));
        let result = answer.await.unwrap_or(Err(Failure::Timeout));
        if result.as_ref().is_err_and(|failure| failure.spoils_connection()) {
            // Others that wait on it keep it until they are done.
            place.send_if_modified(|link| {
                let is_it = matches!(link, Link::Up(it) if Arc::ptr_eq(it, &connection));
                if is_it {
                    *link = Link::None;
                }
                is_it
            });
        }
        result
    }

    async fn connection(
        &self,
        place: &Arc<watch::Sender<Link>>,
    ) -> Result<Arc<MultiplexedConnection>, Failure> {
        if let Link::Up(connection) = &*place.borrow() {
            return Ok(Arc::clone(connection));
        }
        connect(place, &self.client);
        let mut link = place.subscribe();
        let link = link.wait_for(|link| !matches!(link, Link::Connecting)).await;
        match link.as_deref() {
            Ok(Link::Up(connection)) => Ok(Arc::clone(connection)),
            Ok(Link::Failed(failure)) => Err(*failure),
            _ => Err(Failure::Connection),
        }
    }

    async fn evaluate(
        &self,
        connection: &MultiplexedConnection,
        call: &Call<'_>,
    ) -> Result<Vec<i64>, Failure> {
        let mut connection = connection.clone();
        let by_hash = call.by_hash().query_async(&mut connection).await;
        let answer = match by_hash {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.health.note_reload();
                call.by_source().query_async(&mut connection).await
            }
            answer => answer,
        };
        answer.map_err(|error| kind_of(&error))
    }

    /// May the store be asked? While it fails, one command at a time may.
    fn is_awake(&self) -> bool {
        let mut rests_until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *rests_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *rests_until = Some(now + COMMAND_TIMEOUT);
                true
            }
        }
    }

    fn rest(&self, time: Duration) {
        let mut rests_until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        *rests_until = Some(Instant::now() + time);
    }

    fn wake(&self) {
        // A plain load tells the usual case from the rest.
        if !self.health.is_up() {
            *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Connects in the background, if nobody does.
fn connect(place: &Arc<watch::Sender<Link>>, client: &Client) {
    let is_needed = place.send_if_modified(|link| {
        let is_needed = matches!(link, Link::None | Link::Failed(_));
        if is_needed {
            *link = Link::Connecting;
        }
        is_needed
    });
    if !is_needed {
        return;
    }
    let (place, client) = (Arc::clone(place), client.clone());
    tokio::spawn(async move {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MAX_PENDING);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let link = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Link::Up(Arc::new(connection)),
            Ok(Err(error)) => Link::Failed(kind_of(&error)),
            Err(_) => Link::Failed(Failure::Timeout),
        };
        place.send_replace(link);
    });
}

/// What an error means. Its text is not kept: it may say where the store is.
fn kind_of(error: &RedisError) -> Failure {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => Failure::Timeout,
        ErrorKind::Io => Failure::Connection,
        ErrorKind::AuthenticationFailed => Failure::Denied,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::ReadOnly => Failure::ReadOnly,
            ServerErrorKind::BusyLoading => Failure::Loading,
            ServerErrorKind::NoPerm => Failure::Denied,
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::CrossSlot
            | ServerErrorKind::MasterDown => Failure::Cluster,
            _ => Failure::Answer,
        },
        ErrorKind::Extension => match error.code() {
            Some("OOM") => Failure::Full,
            Some("NOAUTH" | "WRONGPASS") => Failure::Denied,
            // Too few replicas, or a disk that takes nothing: it takes no writes.
            Some("NOREPLICAS" | "MISCONF") => Failure::ReadOnly,
            Some("BUSY") => Failure::Timeout,
            _ => Failure::Answer,
        },
        _ => Failure::Answer,
    }
}
