//! `tollgate check-config`: what `serve` would say to a configuration, without serving.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use crate::{
    app::{self, StartError},
    config::{self, Config, ConfigErrors, Loaded},
    redact,
};

/// Loads the file at `path` as `serve` does, with `env` laid over it. Prints a summary to `out`,
/// or every error, one a line, to `err`; warnings go to `err` as well.
///
/// Success only for a configuration that `serve` would start with, key files and all; else 1.
pub fn run(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> ExitCode {
    let loaded = config::inspect_with(path, env, &rule_faults);
    let refused = loaded.as_ref().ok().and_then(|loaded| app::check(&loaded.config).err());
    let is_good = loaded.is_ok() && refused.is_none();
    // Where nobody reads what is printed, the exit code still tells.
    let _ = report(path, &loaded, refused.as_ref(), out, err);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is wrong with redaction's rules, which those know who compile them.
pub(super) fn rule_faults(config: &Config) -> Vec<(String, String)> {
    redact::rule_faults(&config.redaction)
}

fn report(
    path: &Path,
    loaded: &Result<Loaded, ConfigErrors>,
    refused: Option<&StartError>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<()> {
    let Loaded { config, warnings } = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => return list(errors, err),
    };
    for warning in warnings {
        writeln!(err, "{}: warning: {warning}", path.display())?;
    }
    match refused {
        None => writeln!(out, "{}: ok ({})", path.display(), summary(config)),
        Some(refused) => {
            // One that is of several has a line for each.
            let refused = refused.to_string();
            for error in refused.lines() {
                writeln!(err, "{}: {error}", path.display())?;
            }
            count(refused.lines().count(), err)
        }
    }
}

/// Every error, one a line, and their number: as `check-config` and `serve` print them.
pub(super) fn list(errors: &ConfigErrors, err: &mut impl Write) -> io::Result<()> {
    writeln!(err, "{errors}")?;
    count(errors.iter().count(), err)
}

fn count(errors: usize, err: &mut impl Write) -> io::Result<()> {
    writeln!(err, "{errors} error{}", if errors == 1 { "" } else { "s" })
}

fn summary(config: &Config) -> String {
    let counts = [
        ("issuer", config.auth.issuers.len()),
        ("provider", config.providers.len()),
        ("model", config.models.len()),
        ("tool", config.tools.len()),
        ("tier", config.tiers.len()),
    ];
    let count = |(what, n): (&str, usize)| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    counts.map(count).join(", ")
}
