//! Reads a configuration: the file, `${VAR}`, the environment over it, types, rules.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use super::{
    Config, ConfigError, ConfigErrors, Place, expand,
    findings::Findings,
    key::{Key, Step},
    node::{Node, Value},
    overlay, read, validate,
};

/// No configuration is larger.
const MAX_BYTES: u64 = 4 * 1_048_576;

/// A configuration that is right, and what is worth a second look all the same.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<String>,
}

/// What else must hold of a configuration, which those know who are to use it: keys, and what is
/// wrong with each. It may be asked of one with stand-ins in the place of what can't be read; what
/// it says of these is not told.
pub type Check<'a> = &'a dyn Fn(&Config) -> Vec<(String, String)>;

/// Reads the file at `path` with `env` laid over it; warnings go to the log.
///
/// Of `env`, `TOLLGATE__SECTION__KEY` sets that key and any name can be used as `${NAME}` in the
/// strings of the file; see [`super::environment()`].
///
/// # Errors
/// Everything that is wrong with it at once, each with its key, its place and its remedy.
pub fn load(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Config, ConfigErrors> {
    load_with(path, env, NO_CHECK)
}

/// As [`load`], where `check` must hold too.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    check: Check<'_>,
) -> Result<Config, ConfigErrors> {
    let loaded = inspect_with(path, env, check)?;
    loaded.log_warnings(path);
    Ok(loaded.config)
}

const NO_CHECK: Check<'static> = &|_| Vec::new();

/// As [`load`], but hands the warnings back.
///
/// # Errors
/// As [`load`].
pub fn inspect(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded, ConfigErrors> {
    inspect_with(path, env, NO_CHECK)
}

/// As [`inspect`], where `check` must hold too.
///
/// # Errors
/// As [`load`].
pub fn inspect_with(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    check: Check<'_>,
) -> Result<Loaded, ConfigErrors> {
    let file = read_file(path).map_err(|source| unreadable(path, &source))?;
    inspect_checked(path, &file, env, check)
}

pub(super) fn unreadable(path: &Path, source: &io::Error) -> ConfigErrors {
    ConfigErrors::of_file(path, format!("can't be read: {source}; is --config right?"))
}

impl Loaded {
    pub(super) fn log_warnings(&self, path: &Path) {
        for warning in &self.warnings {
            tracing::warn!(file = %path.display(), "{warning}");
        }
    }
}

pub(super) fn inspect_text(
    path: &Path,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded, ConfigErrors> {
    inspect_checked(path, text, env, NO_CHECK)
}

fn inspect_checked(
    path: &Path,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
    check: Check<'_>,
) -> Result<Loaded, ConfigErrors> {
    let parsed =
        parse(text, env, check).map_err(|errors| ConfigErrors::new(errors).in_file(path))?;
    let warnings = warnings(path, &parsed.inline_secrets);
    Ok(Loaded { config: parsed.config, warnings })
}

impl Config {
    /// Reads a whole configuration out of `text`, with no environment at all.
    ///
    /// # Errors
    /// As [`load`].
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigErrors> {
        parse(text, [], NO_CHECK).map(|parsed| parsed.config).map_err(ConfigErrors::new)
    }
}

/// The file as text.
///
/// # Errors
/// As reading does; also if it is too large or not UTF-8.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One more than is allowed, to tell a file that is just as large from a larger one.
    let read = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 MiB"));
    }
    Ok(text)
}

struct Parsed {
    config: Config,
    /// The keys of secrets that stand in the file itself.
    inline_secrets: Vec<String>,
}

fn parse(
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
    check: Check<'_>,
) -> Result<Parsed, Vec<ConfigError>> {
    let env: BTreeMap<String, String> = env.into_iter().collect();
    let mut tree = Node::parse(text)?;
    let mut errors = overlay::overlay(&mut tree, &env);
    let inline_secrets = inline_secrets(&mut tree);
    errors.append(&mut expand::expand(&mut tree, &env));
    let places = Places::of(&mut tree);

    let reading = read::read(&mut tree);
    errors.extend(reading.errors);
    let Some(config) = reading.config else { return Err(errors) };
    let mut found = Findings::new(errors, reading.holes);
    validate::check(&config, &mut found);
    for (key, message) in check(&config) {
        let is_told = found.is_whole(&key);
        found.require(!is_told, key, message);
    }
    let mut errors = found.into_errors();
    if errors.is_empty() {
        return Ok(Parsed { config, inline_secrets });
    }
    for error in &mut errors {
        places.fill_in(error);
    }
    Err(errors)
}

/// Where each key was written.
struct Places(BTreeMap<String, Place>);

impl Places {
    fn of(tree: &mut Node) -> Self {
        let mut places = BTreeMap::new();
        tree.walk(&Key::default(), &mut |key, node| {
            places.insert(key.to_string(), node.place.clone());
        });
        places.remove("");
        Self(places)
    }

    /// The place of the key, or of the nearest table around it.
    fn fill_in(&self, error: &mut ConfigError) {
        let mut key = error.key.as_str();
        while error.place.is_none() && !key.is_empty() {
            error.place = self.0.get(key).cloned();
            key = key.rfind(['.', '[']).map_or("", |end| &key[..end]);
        }
    }
}

fn inline_secrets(tree: &mut Node) -> Vec<String> {
    let mut keys = Vec::new();
    tree.walk(&Key::default(), &mut |key, node| {
        let secret = match key.0.last() {
            Some(Step::Name(name)) => {
                matches!(name.as_str(), "api_key" | "hmac_secret" | "redis_url" | "notify_secret")
                    || matches!(key.to_string().as_str(), "audit.url" | "redaction.key")
            }
            _ => false,
        };
        if secret && matches!(&node.value, Value::Text(text) if !text.contains("${")) {
            keys.push(key.to_string());
        }
    });
    keys
}

fn warnings(path: &Path, inline_secrets: &[String]) -> Vec<String> {
    if !is_readable_by_others(path) {
        return Vec::new();
    }
    let warning = |key: &String| {
        format!(
            "{key}: a secret stands in a file that others can read; take it out of the \
             environment (\"${{NAME}}\"), or chmod o-r the file"
        )
    };
    inline_secrets.iter().map(warning).collect()
}

fn is_readable_by_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
}
