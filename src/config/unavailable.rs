//! What the configuration has words for and this version has no feature for.
//!
//! Such a key is refused by name: a limit that is written down and not kept is worse than none.
//! Whoever adds a feature takes its line away here.

use super::{AuditContent, AuditStore, Config, ProviderKind, ReplayStore, findings::Findings};

/// Notes each use of a feature that is not there yet.
pub(super) fn refuse(config: &Config, found: &mut Findings) {
    let Config { audit, stream, telemetry, .. } = config;
    #[rustfmt::skip]
    let values = [
        ("audit.content", "\"redacted\"", audit.content == AuditContent::Redacted, "use \"none\""),
        ("stream.replay_store", "\"redis\"", stream.replay_store == ReplayStore::Redis, "use \"memory\""),
        ("telemetry.capture_content", "true", telemetry.capture_content, "use false"),
    ];
    let is_sqlite = audit.store == AuditStore::Sqlite;
    for (key, value, used, remedy) in values {
        found.require(!used, key, unavailable(value, remedy));
    }
    if is_sqlite && audit.retention_days.is_some() {
        let message = unavailable("this key with store = \"sqlite\"", "remove it");
        found.add("audit.retention_days", message);
    }
    for (i, provider) in config.providers.iter().enumerate() {
        let used = provider.kind == ProviderKind::Anthropic;
        let message = unavailable("\"anthropic\"", "use \"openai\"");
        found.require(!used, format!("providers[{i}].kind"), message);
    }
}

fn unavailable(what: &str, remedy: &str) -> String {
    format!("{what} is not in this version of tollgate; {remedy}")
}
