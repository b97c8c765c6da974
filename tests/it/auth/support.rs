//! A gate to try tokens at, and the keys and drafts to make them of.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate::{
    auth::{AuthError, AuthOptions, AuthSetupError, Authenticator, Clock, Reason},
    config::AuthConfig,
    domain::{Caller, Vocabulary},
};

/// When the tests take place, in seconds since 1970.
pub const NOW_S: u64 = 1_800_000_000;
pub const ISSUER: &str = "https://bff.example";

pub fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A clock that stands still until it is turned.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn advance_s(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// An issuer's key: the private half to sign with, the public half as a JWK.
#[derive(Clone)]
pub struct TestKey {
    pub algorithm: Algorithm,
    pub key: EncodingKey,
    pub jwk: Value,
}

impl TestKey {
    pub fn ed25519(kid: &str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let der = pair.to_pkcs8v1().unwrap();
        let jwk =
            json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key()), "kid": kid });
        Self { algorithm: Algorithm::EdDSA, key: EncodingKey::from_ed_der(der.as_ref()), jwk }
    }

    pub fn p256(kid: &str) -> Self {
        Self::elliptic(kid, "P-256", Algorithm::ES256, &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub fn p384(kid: &str) -> Self {
        Self::elliptic(kid, "P-384", Algorithm::ES384, &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    fn elliptic(
        kid: &str,
        curve: &str,
        algorithm: Algorithm,
        signing: &'static EcdsaSigningAlgorithm,
    ) -> Self {
        let pair = EcdsaKeyPair::generate(signing).unwrap();
        let der = pair.to_pkcs8v1().unwrap();
        let point = &pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let jwk = json!({ "kty": "EC", "crv": curve, "x": b64(x), "y": b64(y), "kid": kid });
        Self { algorithm, key: EncodingKey::from_ec_der(der.as_ref()), jwk }
    }

    /// RS256. Making RSA keys is slow, so there is one for each `number`.
    pub fn rsa(kid: &str, number: usize) -> Self {
        static PAIRS: LazyLock<[RsaKeyPair; 2]> =
            LazyLock::new(|| [(); 2].map(|()| RsaKeyPair::generate(KeySize::Rsa2048).unwrap()));
        let pair = &PAIRS[number];
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let pem = pem(der.as_ref());
        let n = b64(pair.public_key().modulus().big_endian_without_leading_zero());
        let e = b64(pair.public_key().exponent().big_endian_without_leading_zero());
        let jwk = json!({ "kty": "RSA", "n": n, "e": e, "kid": kid });
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap();
        Self { algorithm: Algorithm::RS256, key, jwk }
    }

    pub fn hmac(secret: &[u8]) -> Self {
        let key = EncodingKey::from_secret(secret);
        Self { algorithm: Algorithm::HS256, key, jwk: Value::Null }
    }

    pub fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// The same key, its JWK changed.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.jwk[name] = value;
        self
    }

    /// The same key, its JWK without a member.
    pub fn without(mut self, name: &str) -> Self {
        self.jwk.as_object_mut().unwrap().remove(name);
        self
    }

    /// Signs whatever text is given as header and payload.
    pub fn sign_text(&self, header: &str, payload: &str) -> String {
        self.sign_parts(&b64(header), &b64(payload))
    }

    /// Signs whatever is given as the first two parts.
    pub fn sign_parts(&self, header: &str, payload: &str) -> String {
        let signed = format!("{header}.{payload}");
        let signature =
            jsonwebtoken::crypto::sign(signed.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }

    /// A token that nothing is wrong with.
    pub fn draft(&self) -> Draft {
        let mut header = json!({ "alg": self.algorithm, "typ": "JWT" });
        if let Some(kid) = self.jwk.get("kid") {
            header["kid"] = kid.clone();
        }
        Draft { header, claims: good_claims(), key: self.clone() }
    }

    pub fn token(&self) -> String {
        self.draft().sign()
    }
}

pub fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

pub fn jwks<'a>(keys: impl IntoIterator<Item = &'a TestKey>) -> String {
    let keys: Vec<&Value> = keys.into_iter().map(|key| &key.jwk).collect();
    json!({ "keys": keys }).to_string()
}

fn good_claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "tollgate", "sub": "user-1", "jti": "token-1",
        "iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 600,
        "tier": "pro", "agent": "coder", "trust": "L2",
        "capabilities": ["model:reasoning", "code:read"],
    })
}

/// A token in the making.
#[derive(Clone)]
pub struct Draft {
    pub header: Value,
    pub claims: Value,
    pub key: TestKey,
}

impl Draft {
    pub fn sign(&self) -> String {
        self.key.sign_text(&self.header.to_string(), &self.claims.to_string())
    }

    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.claims[name] = value.into();
        self
    }

    pub fn without_claim(mut self, name: &str) -> Self {
        self.claims.as_object_mut().unwrap().remove(name);
        self
    }

    pub fn header(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.header[name] = value.into();
        self
    }

    pub fn without_header(mut self, name: &str) -> Self {
        self.header.as_object_mut().unwrap().remove(name);
        self
    }
}

/// A directory that goes with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let name = format!("auth-{}", uuid::Uuid::new_v4().simple());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An authenticator with a clock to turn, and everything that it needs.
pub struct Gate {
    pub authenticator: Authenticator,
    pub clock: Arc<ManualClock>,
    pub dir: TempDir,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Gate {
    /// One issuer, [`ISSUER`], whose keys are in the file `jwks.json`.
    pub async fn with_keys<'a>(keys: impl IntoIterator<Item = &'a TestKey>) -> Self {
        Self::with_file(&jwks(keys), "").await.unwrap()
    }

    /// As [`Gate::with_keys`], with more TOML for the issuer.
    pub async fn with_issuer<'a>(
        keys: impl IntoIterator<Item = &'a TestKey>,
        issuer_toml: &str,
    ) -> Self {
        Self::with_file(&jwks(keys), issuer_toml).await.unwrap()
    }

    pub async fn with_file(jwks: &str, issuer_toml: &str) -> Result<Self, AuthSetupError> {
        let dir = TempDir::new();
        fs::write(dir.join("jwks.json"), jwks).unwrap();
        let issuer = issuer(&format!("jwks_file = {:?}\n{issuer_toml}", dir.join("jwks.json")));
        Self::start(&issuer, dir, |_| {}).await
    }

    /// One issuer or more, all in TOML.
    pub async fn from_toml(toml: &str) -> Result<Self, AuthSetupError> {
        Self::start(toml, TempDir::new(), |_| {}).await
    }

    pub async fn start(
        toml: &str,
        dir: TempDir,
        adjust: impl FnOnce(&mut AuthOptions),
    ) -> Result<Self, AuthSetupError> {
        let config: AuthConfig = toml::from_str(toml).unwrap();
        let clock = Arc::new(ManualClock(AtomicU64::new(NOW_S * 1_000)));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut options = AuthOptions { clock: clock.clone(), ..AuthOptions::default() };
        adjust(&mut options);
        let words = ["model:reasoning", "model:embedding", "code:read", "audit:read"];
        let vocabulary = Vocabulary::new(words);
        let authenticator =
            Authenticator::start_with(&config, &vocabulary, &tasks, &stop, options).await?;
        Ok(Self { authenticator, clock, dir, tasks, stop })
    }

    /// A token in the usual header.
    pub async fn try_token(&self, token: impl AsRef<[u8]>) -> Result<Arc<Caller>, AuthError> {
        let value = [b"Bearer ", token.as_ref()].concat();
        self.try_headers(&[("authorization", &value)]).await
    }

    pub async fn try_headers(&self, headers: &[(&str, &[u8])]) -> Result<Arc<Caller>, AuthError> {
        self.authenticator.authenticate(&header_map(headers), false).await
    }

    pub async fn try_on_key_route(
        &self,
        headers: &[(&str, &[u8])],
    ) -> Result<Arc<Caller>, AuthError> {
        self.authenticator.authenticate(&header_map(headers), true).await
    }

    /// Ends the background tasks, and proves that they end.
    pub async fn shut_down(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn header_map(headers: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    map
}

/// The TOML of one issuer, [`ISSUER`].
pub fn issuer(more: &str) -> String {
    format!(
        "[[issuers]]\nissuer = \"{ISSUER}\"\naudience = [\"tollgate\"]\n{}{more}",
        if more.contains("algorithms") {
            ""
        } else {
            "algorithms = [\"EdDSA\", \"ES256\", \"ES384\", \"RS256\"]\n"
        }
    )
}

/// How a token is refused that breaks one rule: the same draft without `breaking` must pass.
pub async fn refusal(breaking: impl FnOnce(Draft) -> Draft) -> AuthError {
    refusal_of_text(|draft| breaking(draft).sign()).await
}

/// As [`refusal`], for what can't be said in a draft.
pub async fn refusal_of_text(breaking: impl FnOnce(Draft) -> String) -> AuthError {
    let key = TestKey::ed25519("key-1");
    let gate = Gate::with_keys([&key]).await;
    gate.try_token(key.token()).await.expect("the unbroken token passes");
    gate.try_token(breaking(key.draft())).await.expect_err("the broken token is refused")
}

/// Passes with `change`.
pub async fn passes(change: impl FnOnce(Draft) -> Draft) -> Arc<Caller> {
    let key = TestKey::ed25519("key-1");
    let gate = Gate::with_keys([&key]).await;
    gate.try_token(change(key.draft()).sign()).await.expect("the token passes")
}

pub fn invalid(reason: Reason) -> AuthError {
    AuthError::Invalid(reason)
}

/// Polls until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
