//! The bare HTTP/1.1 server that the mock upstream and the pass-through are.

use std::{io::Read, net::Ipv4Addr, process, thread};

use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::Service,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{Failure, Outcome};

/// Serves on a free port of the loopback, whose address is the first line of standard output,
/// until standard input closes.
pub async fn serve<S, B>(service: S) -> Outcome<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Failure>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Failure>,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    thread::spawn(exit_with_parent);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
        // A client that hangs up is no fault of the server's.
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// The parent holds the other end of standard input, so it closes however the parent dies.
fn exit_with_parent() {
    let mut rest = [0];
    while matches!(std::io::stdin().read(&mut rest), Ok(1)) {}
    process::exit(0);
}
