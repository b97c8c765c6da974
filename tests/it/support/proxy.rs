//! A TCP proxy in front of a server, which can be made slow, silent or gone.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};

/// Pieces of 64 KiB under way at once.
const PIECES: usize = 256;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Works,
    /// What is sent arrives so much later.
    Slow(Duration),
    /// Connections stay, or come to be, and nothing arrives any more, in no direction.
    Silent,
    /// Connections are cut, and no new ones are taken.
    Gone,
}

/// Gone, with its connections, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// In front of the server at that port of this machine.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (network, seen) = watch::channel(Network::Works);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *seen.borrow() == Network::Gone {
                    continue;
                }
                tokio::spawn(connect(client, to, seen.clone()));
            }
        });
        Self { address, network, accepting }
    }

    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Network::Gone);
    }
}

/// One connection, until either side or the network ends it.
async fn connect(client: TcpStream, to: u16, mut network: watch::Receiver<Network>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    // What is sent in small pieces is not to wait for the kernel.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = copy(from_client, to_server, network.clone());
    let back = copy(from_server, to_client, network.clone());
    tokio::select! {
        _ = there => {}
        _ = back => {}
        _ = network.wait_for(|network| *network == Network::Gone) => {}
    }
}

/// What was read, and when it is to arrive.
type Piece = (Instant, Vec<u8>);

/// Latency, and not a narrow way: what follows is read while what came before is under way.
async fn copy(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    network: watch::Receiver<Network>,
) -> io::Result<()> {
    let (pieces, arriving) = mpsc::channel(PIECES);
    let (read, written) =
        tokio::join!(read(from, pieces, network.clone()), write(to, arriving, network));
    read.and(written)
}

async fn read(
    mut from: impl AsyncRead + Unpin,
    pieces: mpsc::Sender<Piece>,
    network: watch::Receiver<Network>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let delay = match *network.borrow() {
            Network::Slow(delay) => delay,
            Network::Works | Network::Silent | Network::Gone => Duration::ZERO,
        };
        let piece = (Instant::now() + delay, buffer[..length].to_vec());
        if length == 0 || pieces.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut arriving: mpsc::Receiver<Piece>,
    mut network: watch::Receiver<Network>,
) -> io::Result<()> {
    while let Some((at, piece)) = arriving.recv().await {
        // The way takes so long: nobody waits here for something to happen.
        tokio::time::sleep_until(at).await;
        let arrives = network.wait_for(|network| *network != Network::Silent).await;
        arrives.map_err(io::Error::other)?;
        to.write_all(&piece).await?;
    }
    Ok(())
}
