//! TLS from PEM files, for HTTP/2 and HTTP/1.1.

use std::{path::PathBuf, sync::Arc};

use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

use crate::config::TlsConfig;

/// RFC 7301 §6, RFC 9113 §3.1.
pub(super) const ALPN_H2: &[u8] = b"h2";
const ALPN_HTTP_1_1: &[u8] = b"http/1.1";

/// Why there is no TLS to be had from these files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {source}", path = path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{path}: there is no certificate in it", path = .0.display())]
    NoCertificate(PathBuf),
    #[error("the certificate and its key can't be used: {0}")]
    Unusable(#[source] rustls::Error),
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// A file can't be read or has no PEM in it, or the key is not the certificate's.
pub fn tls_config(files: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
    let in_file = |path: &PathBuf| {
        let path = path.clone();
        move |source| TlsError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(in_file(&files.cert))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(files.cert.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(in_file(&files.key))?;
    // Named, so that it does not matter whether a process-wide default was installed.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_HTTP_1_1.to_vec()];
    Ok(Arc::new(config))
}
