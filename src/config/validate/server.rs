//! `[server]` and `[admission]`.

use std::{fs, net::SocketAddr, path::Path};

use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::{bounds, wide};
use crate::config::{AdmissionConfig, ServerConfig, TlsConfig, findings::Findings};

pub(super) fn check(server: &ServerConfig, found: &mut Findings) {
    bounds(
        found,
        "server",
        &[
            ("body_limit_bytes", wide(server.body_limit_bytes), 1..=1_073_741_824),
            ("header_timeout_s", server.header_timeout_s, 1..=300),
            ("body_idle_timeout_s", server.body_idle_timeout_s, 1..=3_600),
            ("request_timeout_s", server.request_timeout_s, 1..=86_400),
            ("drain_s", server.drain_s, 0..=3_600),
        ],
    );
    if overlap(server.listen, server.admin_listen) && !found.in_hole("server.listen") {
        found.add(
            "server.admin_listen",
            "is the same port as server.listen; health and metrics are never public, use another",
        );
    }
    for (i, network) in server.trusted_proxies.iter().enumerate() {
        found.require(
            network.prefix_len() > 0,
            format!("server.trusted_proxies[{i}]"),
            "believes every peer, so that anybody may pass for any address; \
             name the networks of your proxies",
        );
    }
    if let Some(tls) = &server.tls {
        check_tls(tls, found);
    }
}

/// Would binding both fail? Port 0 is a new port each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_ip
}

fn check_tls(tls: &TlsConfig, found: &mut Findings) {
    check_pem(
        "server.tls.cert",
        &tls.cert,
        "holds no certificate in PEM; give the chain, the server's own first",
        |pem| CertificateDer::from_pem_slice(pem).map(drop),
        found,
    );
    check_pem(
        "server.tls.key",
        &tls.key,
        "holds no private key in PEM; give one that is not encrypted (PKCS#8, PKCS#1 or SEC1)",
        |pem| PrivateKeyDer::from_pem_slice(pem).map(drop),
        found,
    );
}

fn check_pem(
    key: &str,
    path: &Path,
    unfit: &str,
    parse: impl FnOnce(&[u8]) -> Result<(), pem::Error>,
    found: &mut Findings,
) {
    match fs::read(path) {
        Ok(pem) => found.require(parse(&pem).is_ok(), key, unfit),
        Err(source) => found.add(key, unreadable(path, &source)),
    }
}

pub(super) fn unreadable(path: &Path, source: &std::io::Error) -> String {
    format!(
        "{} can't be read: {source}; a path that is not absolute is taken from where tollgate starts",
        path.display()
    )
}

pub(super) fn check_admission(admission: &AdmissionConfig, found: &mut Findings) {
    bounds(
        found,
        "admission",
        &[
            ("max_connections", wide(admission.max_connections), 1..=1_000_000),
            (
                "max_connections_per_address",
                wide(admission.max_connections_per_address),
                1..=1_000_000,
            ),
            ("max_in_flight", wide(admission.max_in_flight), 1..=1_000_000),
            (
                "address_requests_per_second",
                admission.address_requests_per_second.into(),
                1..=1_000_000,
            ),
            ("address_burst", admission.address_burst.into(), 1..=10_000_000),
            (
                "caller_requests_per_second",
                admission.caller_requests_per_second.into(),
                1..=1_000_000,
            ),
            ("caller_burst", admission.caller_burst.into(), 1..=10_000_000),
        ],
    );
}
