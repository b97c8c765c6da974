//! `tollgate mint-token`: a token for the dev gateway, or signed by a key of one's own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::{Failure, dev, say};
use crate::{
    auth::mint::{self, SigningKey, TokenSpec},
    domain::TrustLevel,
};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The dev gateway's data directory, whose key signs
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// Sign with this PKCS#8 PEM key instead (Ed25519, P-256 or RSA)
    #[arg(long)]
    key: Option<PathBuf>,
    /// `iss`
    #[arg(long, default_value = dev::ISSUER)]
    issuer: String,
    /// `aud`
    #[arg(long, default_value = dev::AUDIENCE)]
    audience: Vec<String>,
    /// `sub`
    #[arg(long, default_value = "dev")]
    subject: String,
    /// The tier whose limits hold
    #[arg(long, default_value = "pro")]
    tier: String,
    /// The agent that acts for the subject
    #[arg(long)]
    agent: Option<String>,
    /// Repeatable; without one the token may do nothing
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,
    /// L0 to L3
    #[arg(long)]
    trust: Option<TrustLevel>,
    /// How long it is good for, such as 90s, 10m or 8h; at most `auth.max_token_lifetime_s`
    #[arg(long, default_value = "8h", value_parser = duration)]
    ttl: Duration,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let key = match &options.key {
        Some(path) => load(path)?,
        None => load(&dev::key_path(&options.data)).map_err(|failure| {
            format!(
                "{failure}; run `tollgate dev` once to make the dev issuer's key, or pass --key"
            )
        })?,
    };
    let spec = TokenSpec {
        issuer: options.issuer.clone(),
        audience: options.audience.clone(),
        subject: options.subject.clone(),
        tier: Some(options.tier.clone()),
        agent: options.agent.clone(),
        capabilities: options.capabilities.clone(),
        trust: options.trust,
        ttl: options.ttl,
        ..TokenSpec::default()
    };
    say(&mint::mint(&key, &spec)?)
}

fn load(path: &Path) -> Result<SigningKey, Failure> {
    SigningKey::load(path).map_err(Into::into)
}

/// A whole number and a unit: `s`, `m`, `h` or `d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: write a number and s, m, h or d, such as 10m");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}
