//! The ports that a gateway listens on.

use std::{net::SocketAddr, sync::Arc};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::StartError;
use crate::http::{
    Router,
    server::{self, Bounds, ServerTls},
};

/// A listening port: the task that accepts, and those of its connections.
#[derive(Debug)]
pub(super) struct Port {
    pub tasks: TaskTracker,
    stop: CancellationToken,
}

impl Port {
    pub fn open(
        listener: TcpListener,
        router: Router,
        bounds: Bounds,
        tls: Option<Arc<ServerTls>>,
    ) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(server::serve(listener, router, bounds, tls, stop.clone(), tasks.clone()));
        Self { tasks, stop }
    }

    /// Takes no further connection and no further request.
    pub fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
    }
}

pub(super) async fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| StartError::Listen { key, address, source })
}

/// The address that a port of 0 became.
pub(super) fn local(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}
