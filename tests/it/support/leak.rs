//! Secrets that are told apart by where they were put, and the search for them in bytes.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::secret::whole;

/// Made-up secrets, each with the place that it was put into.
#[derive(Clone, Default)]
pub struct Planted(Arc<Mutex<Vec<(String, String)>>>);

impl Planted {
    /// A secret for just this place, of a format that is known.
    pub fn at(&self, place: &str) -> String {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let secret = whole(&format!("ghp_⁞Qx7Z{random}"));
        self.0.lock().unwrap().push((place.to_owned(), secret.clone()));
        secret
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Panics if `bytes` have one of them in it, plain or in another spelling.
    pub fn assert_not_in(&self, what: &str, bytes: &[u8]) {
        for (place, secret) in &*self.0.lock().unwrap() {
            for (spelling, text) in spellings(secret) {
                if let Some(at) = memchr::memmem::find(bytes, text.as_bytes()) {
                    let around = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
                    let around = String::from_utf8_lossy(around);
                    panic!("{what} has the secret of {place} ({spelling}): …{around}…");
                }
            }
        }
    }
}

/// `text`, each of its bytes spelled in another way.
pub fn spelled(text: &str, spell: impl Fn(u8) -> String) -> String {
    text.bytes().map(spell).collect()
}

/// What a secret might stand as. Of its own characters the middle ones: half of it is a leak too.
fn spellings(secret: &str) -> Vec<(String, String)> {
    let middle = &secret[8..28];
    let mut spellings = vec![
        ("plain".to_owned(), middle.to_owned()),
        ("percent".to_owned(), spelled(middle, |byte| format!("%{byte:02X}"))),
        ("percent, small".to_owned(), spelled(middle, |byte| format!("%{byte:02x}"))),
        ("escapes".to_owned(), spelled(middle, |byte| format!("\\u{byte:04x}"))),
        ("hexadecimal".to_owned(), spelled(middle, |byte| format!("{byte:02x}"))),
        ("reversed".to_owned(), middle.chars().rev().collect()),
    ];
    // Base64 of anything that it stands in looks one of three ways, but for its ends.
    for shift in 0..3 {
        let padded = [&b"   "[..shift], middle.as_bytes()].concat();
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            let inner = encoded[4..encoded.len() - 4].to_owned();
            spellings.push((format!("base64, {shift} bytes on"), inner));
        }
    }
    spellings
}

/// All files of a directory, one after the other: a database with its journal, and the spool.
pub fn files_of(directory: &Path) -> Vec<u8> {
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => files_of(path),
        // A running gateway removes what it has shipped.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    paths.iter().flat_map(read).collect()
}

/// Passes connections on to a server, and keeps what was sent to it.
#[derive(Clone)]
pub struct Tap {
    pub endpoint: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// `server` is `http://host:port`.
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sent, server) = (Arc::default(), server.trim_start_matches("http://").to_owned());
        let tap = Self { endpoint, sent: Arc::clone(&sent) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, server.clone(), Arc::clone(&sent)));
            }
        });
        tap
    }

    pub fn sent(&self) -> Vec<u8> {
        self.sent.lock().unwrap().clone()
    }
}

async fn pass_on(client: TcpStream, server: String, sent: Arc<Mutex<Vec<u8>>>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move {
        // Whichever side ends first has said all that it had to.
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut piece = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from_client.read(&mut piece).await {
        sent.lock().unwrap().extend_from_slice(&piece[..read]);
        if to_server.write_all(&piece[..read]).await.is_err() {
            break;
        }
    }
    let _ = to_server.shutdown().await;
    let _ = back.await;
}
