//! `tollgate redact`: the rules of redaction, for people to try and for scripts to use.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use super::Failure;
use crate::{
    config::{self, RedactionConfig},
    redact::{Counts, Depth, Engine, Fed, Hit, KeySource, Redactor, RuleInfo, Window},
};

/// What is read at once of a stream.
const PIECE_BYTES: usize = 64 << 10;
/// The longest text that is held whole, as tier 2 and `--explain` need it: no prompt is longer.
const MAX_WHOLE_BYTES: usize = 64 << 20;
/// Signs of a rule that a list has room for.
const SHOWN_SIGNS: usize = 3;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The text [default: stdin]
    file: Option<PathBuf>,
    /// The configuration whose own rules, allow-list and key count
    #[arg(short, long, env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
    /// 1: known formats, read as a stream. 2: values assigned to names such as `password`
    #[arg(long, value_enum, default_value_t = Tier::All)]
    tier: Tier,
    /// Say to stderr of each secret where it is and which rule knows it
    #[arg(long)]
    explain: bool,
    /// Exit with 1 if there was a secret
    #[arg(long)]
    check: bool,
    /// List the rules instead
    #[arg(long)]
    rules: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    #[value(name = "1")]
    Formats,
    #[value(name = "2")]
    Contexts,
    All,
}

/// Exits with 1 where `--check` has found something, or where it fails.
pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let redactor = redactor(options.config.as_deref())?;
    let mut out = BufWriter::with_capacity(PIECE_BYTES, io::stdout().lock());
    if options.rules {
        list(redactor.engine(), &mut out).or_else(unless_nobody_reads)?;
        return Ok(ExitCode::SUCCESS);
    }
    let counts = match &options.file {
        Some(path) => {
            let cannot = |error| format!("cannot read {}: {error}", path.display());
            let file = File::open(path).map_err(cannot)?;
            redact(options, &redactor, &path.display().to_string(), file, &mut out)
        }
        None => redact(options, &redactor, "stdin", io::stdin().lock(), &mut out),
    }?;
    let found = !counts.is_empty();
    Ok(if options.check && found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// As the gateway has it, but that no key file is made.
fn redactor(config: Option<&Path>) -> Result<Redactor, Failure> {
    let Some(path) = config else { return Ok(Redactor::new(&RedactionConfig::default())?) };
    let config = config::load(path, config::environment())?;
    let key = KeySource::new(&config.redaction, &config.audit.path).peek()?;
    Ok(Redactor::with_key(&config.redaction, key.key().clone())?)
}

fn redact(
    options: &Options,
    redactor: &Redactor,
    name: &str,
    mut text: impl Read,
    out: &mut impl Write,
) -> Result<Counts, Failure> {
    if options.tier == Tier::Formats && !options.explain {
        let mut stream = Stream { redactor, window: Window::default(), counts: Counts::new() };
        stream.run(&mut text, out).or_else(unless_nobody_reads)?;
        return Ok(stream.counts);
    }
    let mut whole = Vec::new();
    let limit = u64::try_from(MAX_WHOLE_BYTES + 1)?;
    text.take(limit).read_to_end(&mut whole)?;
    if whole.len() > MAX_WHOLE_BYTES {
        let mib = MAX_WHOLE_BYTES >> 20;
        return Err(format!(
            "{name} is longer than {mib} MiB, and must be held whole for tier 2 and for --explain; \
             `--tier 1` alone reads it as a stream"
        )
        .into());
    }
    let hits = find(redactor.engine(), &whole, options.tier);
    write(redactor, &whole, &hits, out).or_else(unless_nobody_reads)?;
    if options.explain {
        // Where stderr is gone there is nobody to tell.
        let _ = explain(redactor.engine(), name, &whole, &hits, &mut io::stderr());
    }
    let mut counts = Counts::new();
    for hit in &hits {
        *counts.entry(redactor.engine().name(hit.rule).clone()).or_default() += 1;
    }
    Ok(counts)
}

fn find(engine: &Engine, text: &[u8], tier: Tier) -> Vec<Hit> {
    let depth = if tier == Tier::Formats { Depth::Formats } else { Depth::Complete };
    let mut hits = engine.find(text, depth);
    if tier == Tier::Contexts {
        hits.retain(|hit| engine.info(hit.rule).tier == 2);
    }
    hits
}

/// Writes `text` without what was found in it.
fn write(redactor: &Redactor, text: &[u8], hits: &[Hit], out: &mut impl Write) -> io::Result<()> {
    let mut from = 0;
    for Hit { at, rule } in hits {
        out.write_all(&text[from..at.start])?;
        out.write_all(redactor.placeholder(*rule, &text[at.clone()]).as_bytes())?;
        from = at.end;
    }
    out.write_all(&text[from..])?;
    out.flush()
}

/// A text that is read in pieces and need not end.
struct Stream<'a> {
    redactor: &'a Redactor,
    window: Window,
    counts: Counts,
}

impl Stream<'_> {
    fn run(&mut self, text: &mut impl Read, out: &mut impl Write) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        // A character whose end has not come yet stands at the beginning.
        let mut filled = 0;
        loop {
            let read = match text.read(&mut piece[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            filled += read;
            let used = self.take(&piece[..filled], read == 0, out)?;
            piece.copy_within(used..filled, 0);
            filled -= used;
            // What is not held back is seen at once: `tail -f log | tollgate redact --tier 1`.
            out.flush()?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Takes all of `bytes` but a character at their end that is not whole; says how much.
    fn take(&mut self, bytes: &[u8], last: bool, out: &mut impl Write) -> io::Result<usize> {
        let mut rest = bytes;
        loop {
            let (text, invalid) = match str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => {
                    let text = str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default();
                    (text, Some(error.error_len()))
                }
            };
            self.feed(text, out)?;
            rest = &rest[text.len()..];
            let length = match invalid {
                None => break,
                Some(None) if !last => return Ok(bytes.len() - rest.len()),
                Some(length) => length.unwrap_or(rest.len()),
            };
            // No secret goes on over what is no character.
            self.finish(out)?;
            out.write_all(&rest[..length])?;
            rest = &rest[length..];
        }
        if last {
            self.finish(out)?;
        }
        Ok(bytes.len())
    }

    fn feed(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut changed = String::new();
        match self.window.feed(self.redactor, text, &mut changed, &mut self.counts) {
            Fed::Untouched => out.write_all(text.as_bytes()),
            Fed::Changed => out.write_all(changed.as_bytes()),
        }
    }

    fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut rest = String::new();
        self.window.finish(self.redactor, &mut rest, &mut self.counts);
        out.write_all(rest.as_bytes())
    }
}

/// `name:line:column: rule: …` for each, and a count of each rule's. Never a secret.
fn explain(
    engine: &Engine,
    name: &str,
    text: &[u8],
    hits: &[Hit],
    err: &mut impl Write,
) -> io::Result<()> {
    let (mut line, mut line_start, mut seen) = (1, 0, 0);
    let mut counts = BTreeMap::<&str, usize>::new();
    for Hit { at, rule } in hits {
        for newline in memchr::memchr_iter(b'\n', &text[seen..at.start]) {
            line += 1;
            line_start = seen + newline + 1;
        }
        seen = at.start;
        let column = String::from_utf8_lossy(&text[line_start..at.start]).chars().count() + 1;
        let (info, length) = (engine.info(*rule), at.len());
        let reason = reason(info, &text[..at.end], at.start);
        writeln!(err, "{name}:{line}:{column}: {}: {length} bytes, {reason}", info.name)?;
        *counts.entry(&info.name).or_default() += 1;
    }
    for (rule, count) in counts {
        writeln!(err, "{count:>7} {rule}")?;
    }
    let count = hits.len();
    writeln!(err, "{count:>7} secret{} in {name}", if count == 1 { "" } else { "s" })
}

/// Why it was found. A format's prefix is no secret.
fn reason(info: &RuleInfo, text: &[u8], start: usize) -> String {
    if info.tier == 2 {
        return "what is assigned to a name like this is secret (tier 2)".to_owned();
    }
    let begins = |sign: &&String| text[start..].starts_with(sign.as_bytes());
    let sign = info.signs.iter().find(begins).or_else(|| info.signs.first());
    let sign = sign.map(String::as_str).unwrap_or_default();
    let source = if info.source.is_empty() { "an own rule" } else { &info.source };
    format!("the format of {sign:?}… ({source})")
}

fn list(engine: &Engine, out: &mut impl Write) -> io::Result<()> {
    let width = engine.infos().iter().map(|rule| rule.name.len()).max().unwrap_or_default();
    writeln!(out, "TIER  {:width$}  BEGINS WITH, OR IS ASSIGNED TO; SOURCE", "RULE")?;
    for RuleInfo { name, tier, signs, source } in engine.infos() {
        let shown: Vec<Cow<'_, str>> =
            signs.iter().take(SHOWN_SIGNS).map(|sign| format!("{sign:?}").into()).collect();
        let more = if signs.len() > SHOWN_SIGNS { ", …" } else { "" };
        let shown = shown.join(", ");
        let source = if source.is_empty() { String::new() } else { format!("  {source}") };
        writeln!(out, "{tier:<4}  {name:width$}  {shown}{more}{source}")?;
    }
    out.flush()
}

/// A reader that has gone is no failure of ours.
fn unless_nobody_reads<T: Default>(error: io::Error) -> Result<T, Failure> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(T::default()) } else { Err(error.into()) }
}
