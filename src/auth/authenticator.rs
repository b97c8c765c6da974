//! From a request's headers to a [`Caller`].

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use http::HeaderMap;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    AuthError, AuthSetupError, Clock, Reason, SystemClock, UnverifiedToken,
    cache::{TokenCache, Verified, digest_of},
    claims::{TimeRules, check_audience, optional_text},
    deny::{DenyList, TokenIds},
    issuer::Issuer,
    key_set::KeySet,
    key_source::{FreshnessRules, Surroundings},
    source::{Credential, Sources},
};
use crate::{
    config::{AuthConfig, DenyConfig},
    domain::{Caller, Vocabulary},
};

/// What is not configured and a test may want otherwise.
#[derive(Debug, Clone)]
pub struct AuthOptions {
    pub clock: Arc<dyn Clock>,
    /// For the whole of one JWKS fetch.
    pub fetch_timeout: Duration,
    /// Between two fetches for the sake of a `kid` that is not known.
    pub refetch_cooldown: Duration,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            fetch_timeout: Duration::from_secs(5),
            refetch_cooldown: Duration::from_secs(10),
        }
    }
}

/// Knows whose tokens are believed (DESIGN §5). One for a gateway, shared.
#[derive(Debug)]
pub struct Authenticator {
    issuers: Vec<Issuer>,
    by_name: HashMap<String, usize>,
    sources: Sources,
    times: TimeRules,
    deny: ArcSwap<DenyList>,
    cache: TokenCache,
    clock: Arc<dyn Clock>,
    unknown_capabilities: AtomicU64,
}

impl Authenticator {
    /// Checks the configuration, reads each issuer's keys once and goes on reading them in tasks
    /// of `tasks` until `stop`.
    ///
    /// A URL that does not answer is logged and asked again; its issuer's tokens are refused
    /// until it does.
    ///
    /// # Errors
    /// [`AuthSetupError`], which names the key of the configuration; among them a JWKS file
    /// that can't be used.
    pub async fn start(
        config: &AuthConfig,
        vocabulary: &Vocabulary,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, AuthSetupError> {
        Self::start_with(config, vocabulary, tasks, stop, AuthOptions::default()).await
    }

    /// Would [`Authenticator::start`] take this configuration? Asks no one.
    ///
    /// # Errors
    /// As [`Authenticator::start`].
    pub fn check(config: &AuthConfig, vocabulary: &Vocabulary) -> Result<(), AuthSetupError> {
        let options = AuthOptions::default();
        let around = Surroundings {
            clock: Arc::clone(&options.clock),
            rules: freshness_rules(config, &options)?,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let issuers = make_issuers(config, vocabulary, options.fetch_timeout, &around)?;
        index_by_name(&issuers)?;
        for (index, issuer) in config.issuers.iter().enumerate() {
            let Some(file) = &issuer.jwks_file else { continue };
            let keys = std::fs::read(file).map_err(|error| error.to_string());
            let keys =
                keys.and_then(|keys| KeySet::parse(&keys).map_err(|error| error.to_string()));
            keys.map_err(|problem| AuthSetupError::Issuer { index, key: "jwks_file", problem })?;
        }
        Ok(())
    }

    /// As [`Authenticator::start`].
    ///
    /// # Errors
    /// As [`Authenticator::start`].
    pub async fn start_with(
        config: &AuthConfig,
        vocabulary: &Vocabulary,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        options: AuthOptions,
    ) -> Result<Self, AuthSetupError> {
        let around = Surroundings {
            clock: Arc::clone(&options.clock),
            rules: freshness_rules(config, &options)?,
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        let issuers = make_issuers(config, vocabulary, options.fetch_timeout, &around)?;
        let by_name = index_by_name(&issuers)?;
        let fresh = join_all(issuers.iter().map(|issuer| issuer.keys.refresh())).await;
        for (index, (issuer, fresh)) in issuers.iter().zip(fresh).enumerate() {
            if !fresh && config.issuers[index].jwks_file.is_some() {
                let problem = "it can't be read as a JWK set; the log says why".to_owned();
                return Err(AuthSetupError::Issuer { index, key: "jwks_file", problem });
            }
            issuer.keys.keep_fresh(fresh);
        }
        Ok(Self {
            sources: Sources::new(issuers.iter().map(|issuer| &issuer.header)),
            issuers,
            by_name,
            times: TimeRules {
                leeway_ms: config.leeway_s.saturating_mul(1_000),
                max_lifetime_ms: config.max_token_lifetime_s.saturating_mul(1_000),
            },
            deny: ArcSwap::from_pointee(DenyList::new(&config.deny)),
            cache: TokenCache::new(),
            clock: options.clock,
            unknown_capabilities: AtomicU64::new(0),
        })
    }

    /// Who is calling. `route_takes_api_key`: may the token come in `x-api-key` too?
    ///
    /// # Errors
    /// [`AuthError`], which is safe to show and names the remedy.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        route_takes_api_key: bool,
    ) -> Result<Arc<Caller>, AuthError> {
        if let Some(known) = self.recall(headers, route_takes_api_key) {
            return known;
        }
        let credential = self.credential(headers, route_takes_api_key)?;
        let verified = Arc::new(self.verify(credential).await?);
        let admitted = self.admit(&verified);
        self.cache.insert(digest_of(credential.token), verified);
        admitted
    }

    /// As [`Authenticator::authenticate`], without waiting for anything. `None`: the token has not
    /// been checked lately.
    pub fn recall(
        &self,
        headers: &HeaderMap,
        route_takes_api_key: bool,
    ) -> Option<Result<Arc<Caller>, AuthError>> {
        let credential = match self.credential(headers, route_takes_api_key) {
            Ok(credential) => credential,
            Err(error) => return Some(Err(error)),
        };
        let cached = self.cache.get(&digest_of(credential.token), self.clock.now_ms())?;
        self.still_holds(&cached, credential).then(|| self.admit(&cached))
    }

    fn credential<'a>(
        &'a self,
        headers: &'a HeaderMap,
        route_takes_api_key: bool,
    ) -> Result<Credential<'a>, AuthError> {
        let credential = self.sources.find(headers, route_takes_api_key)?;
        if credential.token.len() > UnverifiedToken::MAX_LEN {
            return Err(Reason::TooLarge.into());
        }
        Ok(credential)
    }

    /// Replaces the deny list; the next call is checked against the new one.
    pub fn set_deny_list(&self, deny: &DenyConfig) {
        self.deny.store(Arc::new(DenyList::new(deny)));
    }

    /// Can anybody's token be checked? One issuer that is away is the trouble of its own callers:
    /// to turn away everybody else's would make it all theirs.
    ///
    /// # Errors
    /// Names the issuers, where the keys of all are missing or too old.
    pub fn ready(&self) -> Result<(), String> {
        let waiting = self.issuers.iter().filter(|issuer| issuer.keys.usable().is_none());
        let names: Vec<&str> = waiting.map(|issuer| issuer.name.as_str()).collect();
        if names.len() < self.issuers.len() {
            Ok(())
        } else {
            Err(format!("no keys of {}", names.join(", ")))
        }
    }

    /// Capability names in tokens, so far, that the vocabulary does not have.
    #[must_use]
    pub fn unknown_capabilities(&self) -> u64 {
        self.unknown_capabilities.load(Ordering::Relaxed)
    }

    /// A token that was taken from one header must not pass in another, nor after its key went.
    fn still_holds(&self, verified: &Verified, credential: Credential<'_>) -> bool {
        self.issuers.get(verified.issuer).is_some_and(|issuer| {
            issuer.header == *credential.header && issuer.keys.is_current(verified.generation)
        })
    }

    fn admit(&self, verified: &Verified) -> Result<Arc<Caller>, AuthError> {
        if self.deny.load().denies(&verified.ids, &verified.caller.subject) {
            return Err(Reason::Denied.into());
        }
        Ok(Arc::clone(&verified.caller))
    }

    /// The full check, in the order in which a token earns belief.
    async fn verify(&self, credential: Credential<'_>) -> Result<Verified, AuthError> {
        let token = UnverifiedToken::parse(credential.token)?;
        let index = token.issuer().and_then(|name| self.by_name.get(name));
        let (index, issuer) = index
            .and_then(|index| Some((*index, self.issuers.get(*index)?)))
            .ok_or(Reason::UnknownIssuer)?;
        if issuer.header != *credential.header {
            return Err(Reason::WrongSource.into());
        }
        let (snapshot, kid) = issuer.verify_signature(&token).await?;
        // From here on the claims are the issuer's word.
        let now_ms = self.clock.now_ms();
        let claims = &token.claims;
        check_audience(claims, &issuer.audience)?;
        let exp_ms = self.times.check(claims, now_ms)?;
        let ids = TokenIds {
            jti: optional_text(claims, "jti")?,
            sub: optional_text(claims, "sub")?,
            kid,
        };
        let caller = issuer.mapping.caller(claims, &self.unknown_capabilities)?;
        Ok(Verified {
            caller: Arc::new(caller),
            ids,
            issuer: index,
            generation: snapshot.generation,
            exp_ms,
            checked_at_ms: now_ms,
        })
    }
}

fn freshness_rules(
    config: &AuthConfig,
    options: &AuthOptions,
) -> Result<FreshnessRules, AuthSetupError> {
    if config.jwks_refresh_s == 0 {
        let problem = "it must be at least 1";
        return Err(AuthSetupError::Setting { key: "jwks_refresh_s", problem });
    }
    if config.jwks_max_stale_s < config.jwks_refresh_s {
        let problem = "it must not be less than jwks_refresh_s, or no set would live to be renewed";
        return Err(AuthSetupError::Setting { key: "jwks_max_stale_s", problem });
    }
    Ok(FreshnessRules {
        refresh: Duration::from_secs(config.jwks_refresh_s),
        max_stale_ms: config.jwks_max_stale_s.saturating_mul(1_000),
        cooldown_ms: u64::try_from(options.refetch_cooldown.as_millis()).unwrap_or(u64::MAX),
    })
}

fn make_issuers(
    config: &AuthConfig,
    vocabulary: &Vocabulary,
    fetch_timeout: Duration,
    around: &Surroundings,
) -> Result<Vec<Issuer>, AuthSetupError> {
    let numbered = config.issuers.iter().enumerate();
    numbered
        .map(|(index, issuer)| {
            Issuer::new(index, issuer, vocabulary, fetch_timeout, around.clone())
        })
        .collect()
}

fn index_by_name(issuers: &[Issuer]) -> Result<HashMap<String, usize>, AuthSetupError> {
    if issuers.is_empty() {
        return Err(AuthSetupError::NoIssuer);
    }
    let mut by_name = HashMap::with_capacity(issuers.len());
    for (index, issuer) in issuers.iter().enumerate() {
        if by_name.insert(issuer.name.clone(), index).is_some() {
            let problem = format!("`{}` is there twice", issuer.name);
            return Err(AuthSetupError::Issuer { index, key: "issuer", problem });
        }
    }
    Ok(by_name)
}
