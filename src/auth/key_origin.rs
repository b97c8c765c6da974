//! Where an issuer's keys are read: a file, or a URL.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

use reqwest::{Client, StatusCode, Url, header::ACCEPT, redirect};
use tokio::io::AsyncReadExt;

use super::{KeySet, KeySetError};

/// How long a connection to a JWKS server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What `localhost` means here.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A place that a JWK set is read from.
#[derive(Debug)]
pub(super) enum KeyOrigin {
    File(PathBuf),
    Url { client: Client, url: Url },
}

/// Why a JWK set could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyOriginError {
    #[error("the file can't be read: {0}")]
    File(#[source] io::Error),
    #[error("the server does not answer: {0}")]
    Http(#[source] reqwest::Error),
    #[error("the server answers {0} instead of 200")]
    Status(StatusCode),
    #[error("the set is refused: {0}")]
    Set(#[from] KeySetError),
}

impl KeyOrigin {
    /// The bytes of the set, at most [`KeySet::MAX_LEN`] of them.
    pub(super) async fn read(&self) -> Result<Vec<u8>, KeyOriginError> {
        match self {
            Self::File(path) => {
                let file = tokio::fs::File::open(path).await.map_err(KeyOriginError::File)?;
                let mut bytes = Vec::new();
                let limit = KeySet::MAX_LEN as u64 + 1;
                file.take(limit).read_to_end(&mut bytes).await.map_err(KeyOriginError::File)?;
                if bytes.len() > KeySet::MAX_LEN {
                    return Err(KeySetError::TooLarge.into());
                }
                Ok(bytes)
            }
            Self::Url { client, url } => fetch(client, url).await,
        }
    }
}

async fn fetch(client: &Client, url: &Url) -> Result<Vec<u8>, KeyOriginError> {
    // An URL may hold a token of the operator's; errors are logged.
    let http = |error: reqwest::Error| KeyOriginError::Http(error.without_url());
    let request =
        client.get(url.clone()).header(ACCEPT, "application/jwk-set+json, application/json");
    let mut response = request.send().await.map_err(http)?;
    // Redirects are not followed, so this refuses them too.
    if response.status() != StatusCode::OK {
        return Err(KeyOriginError::Status(response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(http)? {
        if bytes.len() + chunk.len() > KeySet::MAX_LEN {
            return Err(KeySetError::TooLarge.into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A client for JWKS: it follows nobody and listens to no proxy variable. `timeout` bounds the
/// whole of a fetch.
pub(super) fn client(timeout: Duration) -> reqwest::Result<Client> {
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .timeout(timeout)
        // One fetch in minutes: a kept connection would be dead by then.
        .pool_max_idle_per_host(0)
        // So that plain http to this name stays on this machine whatever the resolver says.
        .resolve_to_addrs("localhost", &LOOPBACK.map(|ip| (ip, 0).into()))
        .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Reads a JWKS URL: https, or http to this machine; no user name or password in it.
pub(super) fn parse_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "it is not a URL")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user name or password in a URL ends up in logs");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if url.host_str().is_some_and(is_loopback) => Ok(url),
        "http" => Err("only https (or http to a loopback address) can't be tampered with"),
        _ => Err("it is not an https URL"),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
