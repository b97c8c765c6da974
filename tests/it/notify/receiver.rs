//! A receiver of notices that answers as it is told and remembers what came.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header::LOCATION, header::RETRY_AFTER};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::Instant};

/// What a POST is answered with.
#[derive(Clone)]
pub enum Answer {
    Status(u16),
    /// With `retry-after`.
    Later(u16, String),
    /// To another URL.
    Redirect(String),
    Never,
}

/// A POST that came.
#[derive(Debug)]
pub struct Hit {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Hit {
    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

#[derive(Default)]
struct Script {
    /// One for each of the next POSTs; after them `always`, or 204.
    next: VecDeque<Answer>,
    always: Option<Answer>,
}

pub struct Receiver {
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
    hits: mpsc::Receiver<Hit>,
    serving: JoinHandle<()>,
}

impl Receiver {
    pub async fn start(next: impl IntoIterator<Item = Answer>) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), next).await
    }

    pub async fn on(address: SocketAddr, next: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Script { next: next.into_iter().collect(), always: None };
        let script = Arc::new(Mutex::new(script));
        let (came, hits) = mpsc::channel(4_096);
        let scripts = Arc::clone(&script);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, came) = (Arc::clone(&scripts), came.clone());
                let service =
                    service_fn(move |request| answer(request, Arc::clone(&script), came.clone()));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // A sender that gives up is what some tests are about.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Self { address, script, hits, serving }
    }

    /// With a word in its path that is nobody's business.
    pub fn url(&self) -> String {
        format!("http://{}/hooks/t0ken-in-path?key=t0ken-in-query", self.address)
    }

    pub fn always(&self, answer: Answer) {
        self.script.lock().unwrap().always = Some(answer);
    }

    /// The next POST, once it comes.
    pub async fn hit(&mut self) -> Hit {
        self.hits.recv().await.unwrap()
    }

    /// What came and was not looked at yet.
    pub fn rest(&mut self) -> Vec<Hit> {
        std::iter::from_fn(|| self.hits.try_recv().ok()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Mutex<Script>>,
    came: mpsc::Sender<Hit>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return std::future::pending().await };
    let path = head.uri.to_string();
    let hit = Hit {
        at: Instant::now(),
        method: head.method,
        path,
        headers: head.headers,
        body: body.to_bytes(),
    };
    let answer = {
        let mut script = script.lock().unwrap();
        script.next.pop_front().or_else(|| script.always.clone()).unwrap_or(Answer::Status(204))
    };
    // The test may be over.
    let _ = came.send(hit).await;
    let response = match answer {
        Answer::Status(status) => Response::builder().status(status),
        Answer::Later(status, when) => Response::builder().status(status).header(RETRY_AFTER, when),
        Answer::Redirect(to) => Response::builder().status(307).header(LOCATION, to),
        Answer::Never => std::future::pending().await,
    };
    Ok(response.body(Full::default()).unwrap())
}
