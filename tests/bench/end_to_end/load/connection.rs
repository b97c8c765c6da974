//! One HTTP/1.1 connection, and the requests that go over it.

use std::{fs, net::SocketAddr};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use super::{
    Request, Response,
    answer::{Receipt, read},
};
use crate::{
    Outcome,
    payload::{Ask, PATH},
    plan::Plan,
};

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub async fn open(target: SocketAddr) -> Outcome<Self> {
        let socket = TcpStream::connect(target).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        // How it ends is seen by whoever reads an answer from it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    pub async fn send(&mut self, request: Request) -> Outcome<Response> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends a request and reads its whole answer.
    pub async fn ask(&mut self, ask: Ask, request: Request) -> Outcome<Receipt> {
        let started = Instant::now();
        let mut response = self.send(request).await?;
        read(&mut response, ask, started).await
    }
}

/// The same request from each of several callers.
pub struct Requests(Vec<Request>);

impl Requests {
    pub fn new(plan: &Plan, ask: Ask) -> Outcome<Self> {
        let tokens: Vec<String> = serde_json::from_slice(&fs::read(&plan.tokens)?)?;
        if tokens.is_empty() {
            return Err("there are no tokens".into());
        }
        let body = ask.body();
        let requests = tokens.iter().map(|token| {
            Ok(http::Request::post(PATH)
                .header(HOST, plan.target.to_string())
                .header(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}"))?)
                .header(ACCEPT, "application/json")
                .header(CONTENT_TYPE, "application/json")
                .header(USER_AGENT, "OpenAI/Python 3.52.0")
                .body(Full::new(body.clone()))?)
        });
        requests.collect::<Outcome<_>>().map(Self)
    }

    /// Callers take turns.
    pub fn nth(&self, nth: usize) -> Request {
        self.0[nth % self.0.len()].clone()
    }
}
