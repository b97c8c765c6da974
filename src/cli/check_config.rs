//! `tollgate check-config`: what `serve` would say to a configuration, without serving.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use crate::config::{self, Config, ConfigErrors, Loaded};

/// Loads the file at `path` as `serve` does, with `env` laid over it. Prints a summary to `out`,
/// or every error, one a line, to `err`; warnings go to `err` as well.
///
/// Success only for a configuration that `serve` would start with; else 1.
pub fn run(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> ExitCode {
    let loaded = config::inspect(path, env);
    // Where nobody reads what is printed, the exit code still tells.
    let _ = report(path, &loaded, out, err);
    if loaded.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(
    path: &Path,
    loaded: &Result<Loaded, ConfigErrors>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<()> {
    match loaded {
        Ok(Loaded { config, warnings }) => {
            for warning in warnings {
                writeln!(err, "{}: warning: {warning}", path.display())?;
            }
            writeln!(out, "{}: ok ({})", path.display(), summary(config))
        }
        Err(errors) => list(errors, err),
    }
}

/// Every error, one a line, and their number: as `check-config` and `serve` print them.
pub(super) fn list(errors: &ConfigErrors, err: &mut impl Write) -> io::Result<()> {
    writeln!(err, "{errors}")?;
    let count = errors.iter().count();
    writeln!(err, "{count} error{}", if count == 1 { "" } else { "s" })
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
