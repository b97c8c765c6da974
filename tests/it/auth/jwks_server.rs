//! An HTTP server of one JWK set, with faults.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// What a request is answered with.
#[derive(Clone)]
pub enum Answer {
    Set(String),
    /// With a body all the same.
    Status(u16, String),
    /// To a URL, with a body all the same.
    Redirect(String, String),
    /// Closes without a word.
    Hangup,
    /// A head, half a body and then nothing.
    Stall,
    /// A body without end.
    Endless,
    /// The set, once [`JwksServer::release`] is called.
    Held(String),
}

pub struct JwksServer {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    hits: Arc<AtomicUsize>,
    gate: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl JwksServer {
    pub async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(answer));
        let hits = Arc::new(AtomicUsize::new(0));
        let (gate, gate_of_all) = watch::channel(false);
        let (answers, counter) = (Arc::clone(&answer), Arc::clone(&hits));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, counter) = (Arc::clone(&answers), Arc::clone(&counter));
                let gate = gate_of_all.clone();
                tokio::spawn(async move {
                    // A client that gives up is what some tests are about.
                    let _ = serve(stream, &answers, &counter, gate).await;
                });
            }
        });
        Self { address, answer, hits, gate, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}/jwks.json", self.address)
    }

    pub fn answer_with(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Requests so far.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// Lets all held answers go.
    pub fn release(&self) {
        self.gate.send_replace(true);
    }
}

impl Drop for JwksServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &Mutex<Answer>,
    hits: &AtomicUsize,
    mut gate: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    hits.fetch_add(1, Ordering::SeqCst);
    let answer = answers.lock().unwrap().clone();
    let ok = |len: usize| format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len}");
    let text = match answer {
        Answer::Set(set) => format!("{}\r\n\r\n{set}", ok(set.len())),
        Answer::Status(status, body) => {
            let len = body.len();
            format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
            )
        }
        Answer::Redirect(to, body) => {
            let len = body.len();
            format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: {len}\r\n\r\n{body}")
        }
        Answer::Hangup => return Ok(()),
        Answer::Stall => {
            stream.write_all(format!("{}\r\n\r\n{{\"keys\":[", ok(1_000)).as_bytes()).await?;
            // Until the client gives up.
            while stream.read(&mut [0; 64]).await? > 0 {}
            return Ok(());
        }
        Answer::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"keys\":[").await?;
            loop {
                stream.write_all(&[b' '; 16_384]).await?;
            }
        }
        Answer::Held(set) => {
            let _ = gate.wait_for(|open| *open).await;
            format!("{}\r\n\r\n{set}", ok(set.len()))
        }
    };
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
