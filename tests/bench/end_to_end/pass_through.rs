//! The yardstick: hyper's server before hyper's client, and nothing in between.

use std::net::SocketAddr;

use http::{
    Request, Uri,
    uri::{Authority, Scheme},
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use super::{Outcome, listener};

pub fn run(upstream: SocketAddr) -> Outcome<()> {
    let upstream: Authority = upstream.to_string().parse()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(Scheme::HTTP);
            parts.authority = Some(upstream.clone());
            let client = client.clone();
            async move {
                *request.uri_mut() = Uri::from_parts(parts)?;
                Outcome::Ok(client.request(request).await?)
            }
        });
        listener::serve(service).await
    })
}
