//! What runs beside the calls: `[audit]`, `[stream]`, `[telemetry]`.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use tracing_subscriber::EnvFilter;

use super::{bounds, url, wide};
use crate::config::{
    AuditStore, CheckpointTarget, Config, StreamConfig, TelemetryConfig, findings::Findings,
};

/// Room for two of the spool's files: one that is written to, and one that is shipped.
const MIN_SPOOL_BYTES: u64 = 16 << 20;
const MAX_SPOOL_BYTES: u64 = 1 << 40;
/// Beyond this no checkpoint would ever be made for the rows' sake.
const MAX_CHECKPOINT_ROWS: u64 = 1_000_000_000;
const MAX_RETENTION_DAYS: u64 = 36_500;
/// How much later than the longest call an intent may be closed as unknown: by then its end is written
/// and in the store, unless something is wrong.
const END_GRACE_S: u64 = 60;
const MAX_UNKNOWN_AFTER_S: u64 = 30 * 86_400;
/// Nothing that is waited for longer than 10 minutes comes.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// What a URL may say beside the place: others would be overlooked, and shown in the log.
const POSTGRES_PARAMETERS: [&str; 6] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port"];

pub(super) fn check_audit(config: &Config, found: &mut Findings) {
    let audit = &config.audit;
    check_unknown_after(config, found);
    let is_file = audit.path.file_name().is_some() && !audit.path.is_dir();
    found.require(is_file, "audit.path", "is no path of a file; write data/tollgate.db");
    let is_directory = audit.spool.as_ref().is_none_or(|spool| is_place_of_directory(spool));
    found.require(is_directory, "audit.spool", "is no path of a directory; write data/spool");
    if let CheckpointTarget::File(path) = audit.checkpoints() {
        let is_file = path.file_name().is_some() && !path.is_dir();
        let remedy = "is no path of a file; write data/checkpoints.jsonl, or stdout";
        found.require(is_file, "audit.checkpoints", remedy);
    }
    let key = audit.checkpoint_key();
    let is_file = key.file_name().is_some() && !key.is_dir();
    let remedy = "is no path of a file; write data/checkpoint.pem";
    found.require(is_file, "audit.checkpoint_key", remedy);
    let limits = MIN_SPOOL_BYTES..=MAX_SPOOL_BYTES;
    let numbers = [
        ("spool_limit_bytes", audit.spool_limit_bytes, limits),
        ("checkpoint_rows", audit.checkpoint_rows, 1..=MAX_CHECKPOINT_ROWS),
        ("connect_timeout_ms", audit.connect_timeout_ms, 100..=MAX_TIMEOUT_MS),
        ("statement_timeout_ms", audit.statement_timeout_ms, 100..=MAX_TIMEOUT_MS),
    ];
    bounds(found, "audit", &numbers);
    for (key, url) in [("audit.url", &audit.url), ("audit.owner_url", &audit.owner_url)] {
        if let Some(Err(message)) = url.as_ref().map(check_postgres_url) {
            found.add(key, message);
        }
    }
    if let Some(days) = audit.retention_days {
        bounds(found, "audit", &[("retention_days", days.into(), 1..=MAX_RETENTION_DAYS)]);
        found.require(
            audit.archive.is_some() || audit.store == AuditStore::Sqlite,
            "audit.archive",
            "is missing; write the directory that entries go to when audit.retention_days are over",
        );
    }
    found.require(
        audit.archive.as_ref().is_none_or(|path| is_place_of_directory(path)),
        "audit.archive",
        "is no path of a directory; write data/archive",
    );
    found.require(
        audit.store == AuditStore::Sqlite || audit.url.is_some(),
        "audit.url",
        "is missing; write postgres://user:password@host:5432/database, or use store = \"sqlite\"",
    );
}

/// A call that still runs must not be closed as one that is lost.
fn check_unknown_after(config: &Config, found: &mut Findings) {
    let Some(after_s) = config.audit.unknown_after_s else { return };
    let least = config.server.request_timeout_s.saturating_add(END_GRACE_S);
    if !(least..=MAX_UNKNOWN_AFTER_S).contains(&after_s) {
        let message = format!(
            "must be from {least} (server.request_timeout_s and {END_GRACE_S}) to \
             {MAX_UNKNOWN_AFTER_S}, not {after_s}"
        );
        found.add("audit.unknown_after_s", message);
    }
}

/// Is one there, or nothing yet?
fn is_place_of_directory(path: &Path) -> bool {
    !path.as_os_str().is_empty() && (path.is_dir() || !path.exists())
}

/// What is wrong with it, without showing it: it holds a password.
fn check_postgres_url(url: &SecretString) -> Result<(), &'static str> {
    let text = url.expose_secret();
    let Some(rest) = ["postgres://", "postgresql://"].iter().find_map(|s| text.strip_prefix(s))
    else {
        return Err("must begin with postgres://");
    };
    if text.contains('#') {
        return Err("has no fragment (\"#…\"); remove it (in a password, write %23)");
    }
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let unknown =
        parameters.split('&').filter(|parameter| !parameter.is_empty()).any(|parameter| {
            let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
            !POSTGRES_PARAMETERS.contains(&name)
        });
    if unknown {
        return Err(
            "has a parameter that is none of sslmode, sslrootcert, sslcert, sslkey, host and \
                    port",
        );
    }
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    if !authority.contains('@') || authority.starts_with(['@', ':']) {
        return Err("names no user; write postgres://user:password@host:5432/database");
    }
    if database.is_empty() || database.contains('/') {
        return Err("names no database; write postgres://user:password@host:5432/database");
    }
    Ok(())
}

pub(super) fn check_stream(stream: &StreamConfig, found: &mut Findings) {
    bounds(
        found,
        "stream",
        &[
            ("replay_ttl_s", stream.replay_ttl_s, 1..=86_400),
            ("orphan_timeout_s", stream.orphan_timeout_s, 1..=86_400),
            ("keepalive_s", stream.keepalive_s, 1..=300),
            ("replay_limit_frames", wide(stream.replay_limit_frames), 1..=10_000_000),
            ("replay_limit_bytes", wide(stream.replay_limit_bytes), 1_024..=1_073_741_824),
            ("max_streams", wide(stream.max_streams), 1..=1_000_000),
        ],
    );
}

pub(super) fn check_telemetry(telemetry: &TelemetryConfig, found: &mut Findings) {
    if let Some(Err(message)) = telemetry.otlp_endpoint.as_deref().map(url::parse) {
        found.add("telemetry.otlp_endpoint", message);
    }
    let unnamed = "is empty; name the service as it is to appear in traces";
    found.require(!telemetry.service_name.is_empty(), "telemetry.service_name", unnamed);
    let filter = EnvFilter::builder().parse(&telemetry.log);
    found.require(
        filter.is_ok(),
        "telemetry.log",
        "is no filter; write a level such as \"info\", or \"info,tollgate=debug\"",
    );
}
