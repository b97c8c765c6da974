//! An address that takes no connection and refuses none.

use std::{net::SocketAddr, time::Duration};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener that never accepts and whose queue is full, so that the kernel drops every further
/// SYN: connecting takes as long as the client's own timeout.
pub struct Blackhole {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Blackhole {
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let listener = socket.listen(1).expect("it is bound");
        let address = listener.local_addr().expect("it is bound");
        let mut queue = Vec::new();
        let patience = Duration::from_millis(100);
        while let Ok(Ok(stream)) = tokio::time::timeout(patience, TcpStream::connect(address)).await
        {
            queue.push(stream);
        }
        Self { address, _listener: listener, _queue: queue }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}
