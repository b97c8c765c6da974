//! `tollgate check-config`: what `serve` would say to a configuration, without serving.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use crate::{
    app,
    config::{self, Config, ConfigErrors, Loaded},
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
    match report(path, &config::inspect(path, env), out, err) {
        Ok(true) => ExitCode::SUCCESS,
        // Where nobody reads what is printed, the exit code still tells.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

fn report(
    path: &Path,
    loaded: &Result<Loaded, ConfigErrors>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<bool> {
    match loaded {
        Ok(Loaded { config, warnings }) => {
            for warning in warnings {
                writeln!(err, "{}: warning: {warning}", path.display())?;
            }
            if let Err(error) = app::check(config) {
                writeln!(err, "{}: {error}", path.display())?;
                writeln!(err, "1 error")?;
                return Ok(false);
            }
            writeln!(out, "{}: ok ({})", path.display(), summary(config))?;
            Ok(true)
        }
        Err(errors) => list(errors, err).map(|()| false),
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
