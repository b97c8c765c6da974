//! One issuer: its name, its rules, its keys, and where its tokens carry each fact.

use std::{sync::Arc, time::Duration};

use http::HeaderName;
use jsonwebtoken::Algorithm;
use secrecy::{ExposeSecret, SecretString};

use super::{
    AuthError, AuthSetupError, Reason, UnverifiedToken,
    jwk::is_hmac,
    key_origin::{self, KeyOrigin},
    key_set::KeySet,
    key_source::{KeySource, Snapshot, Surroundings},
    mapping::ClaimMapping,
};
use crate::{config::IssuerConfig, domain::Vocabulary};

/// `auth.issuers[…]`, checked.
#[derive(Debug)]
pub(super) struct Issuer {
    pub name: String,
    pub header: HeaderName,
    pub audience: Vec<String>,
    pub mapping: ClaimMapping,
    pub keys: Arc<KeySource>,
    algorithms: Vec<Algorithm>,
}

impl Issuer {
    /// `index`: where it stands in the configuration, for errors.
    pub(super) fn new(
        index: usize,
        config: &IssuerConfig,
        vocabulary: &Vocabulary,
        fetch_timeout: Duration,
        around: Surroundings,
    ) -> Result<Self, AuthSetupError> {
        let problem = |key, problem: &str| {
            let problem = problem.to_owned();
            AuthSetupError::Issuer { index, key, problem }
        };
        if config.issuer.is_empty() {
            return Err(problem("issuer", "it is empty"));
        }
        if config.audience.is_empty() || config.audience.iter().any(String::is_empty) {
            return Err(problem("audience", "it must name what tokens for this gateway are for"));
        }
        let header = config.header.to_ascii_lowercase();
        let header = header.parse().map_err(|_| problem("header", "it is not a header's name"))?;
        let algorithms = read_algorithms(index, config)?;
        let name = config.issuer.clone();
        let keys = match (&config.jwks_url, &config.jwks_file, &config.hmac_secret) {
            (Some(url), None, None) => {
                let url = key_origin::parse_url(url).map_err(|error| problem("jwks_url", error))?;
                let client = key_origin::client(fetch_timeout).map_err(AuthSetupError::Client)?;
                KeySource::new(name, KeyOrigin::Url { client, url }, around)
            }
            (None, Some(path), None) => KeySource::new(name, KeyOrigin::File(path.clone()), around),
            (None, None, Some(secret)) => {
                check_secret(index, secret, &algorithms)?;
                let secret = secret.expose_secret().as_bytes();
                let keys = KeySet::from_secret(secret, algorithms.clone());
                KeySource::from_secret(name, keys, around)
            }
            _ => {
                let choices = "set exactly one of jwks_url, jwks_file and hmac_secret";
                return Err(problem("jwks_url", choices));
            }
        };
        Ok(Self {
            name: config.issuer.clone(),
            header,
            audience: config.audience.clone(),
            mapping: ClaimMapping::new(index, config, vocabulary)?,
            keys: Arc::new(keys),
            algorithms,
        })
    }

    /// Checks the signature, with this issuer's keys and algorithms alone. Gives the set that
    /// held the key, and the key's own `kid`.
    pub(super) async fn verify_signature(
        &self,
        token: &UnverifiedToken<'_>,
    ) -> Result<(Arc<Snapshot>, Option<String>), AuthError> {
        // Before any key is asked for: a forger's `alg` must not cost the issuer a fetch.
        if !self.algorithms.contains(&token.algorithm) {
            return Err(Reason::AlgorithmNotAllowed.into());
        }
        let snapshot = self.keys_for(token.kid.as_deref()).await?;
        let key = snapshot.keys.select(token.kid.as_deref())?;
        if !key.permits(token.algorithm) {
            return Err(Reason::AlgorithmMismatch.into());
        }
        if !key.verifies(token.signed, token.signature, token.algorithm) {
            return Err(Reason::BadSignature.into());
        }
        let kid = key.kid.clone().or_else(|| token.kid.clone());
        Ok((snapshot, kid))
    }

    async fn keys_for(&self, kid: Option<&str>) -> Result<Arc<Snapshot>, AuthError> {
        match self.keys.usable() {
            None => self.keys.newer_than(None).await,
            Some(now) if now.keys.select(kid).err() == Some(Reason::UnknownKey) => {
                self.keys.newer_than(Some(now.generation)).await
            }
            Some(now) => Ok(now),
        }
    }
}

fn read_algorithms(index: usize, config: &IssuerConfig) -> Result<Vec<Algorithm>, AuthSetupError> {
    let problem = |problem| AuthSetupError::Issuer { index, key: "algorithms", problem };
    if config.algorithms.is_empty() {
        return Err(problem("it must name what the issuer signs with, such as EdDSA".to_owned()));
    }
    let read = |name: &String| {
        name.parse::<Algorithm>()
            .map_err(|_| problem(format!("`{name}` is not an algorithm that is known here")))
    };
    let algorithms: Vec<_> = config.algorithms.iter().map(read).collect::<Result<_, _>>()?;
    // A public key must never be taken for a shared secret (RFC 8725 §2.1), so no issuer has both.
    if algorithms.iter().any(|one| is_hmac(*one) != config.hmac_secret.is_some()) {
        let rule = "HS256, HS384 and HS512 go with hmac_secret, and no other algorithm does";
        return Err(problem(rule.to_owned()));
    }
    Ok(algorithms)
}

/// RFC 7518 §3.2: a secret as long as the hash, or longer.
fn check_secret(
    index: usize,
    secret: &SecretString,
    algorithms: &[Algorithm],
) -> Result<(), AuthSetupError> {
    let needed = algorithms.iter().map(|algorithm| match algorithm {
        Algorithm::HS512 => 64,
        Algorithm::HS384 => 48,
        _ => 32,
    });
    let needed = needed.max().unwrap_or(32);
    if secret.expose_secret().len() >= needed {
        return Ok(());
    }
    let problem = format!("it must have at least {needed} bytes for these algorithms");
    Err(AuthSetupError::Issuer { index, key: "hmac_secret", problem })
}
