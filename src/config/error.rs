//! What is wrong with a configuration: each error with its key, its place and its remedy.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Both from 1; the column counts characters.
    File { line: usize, column: usize },
    /// The name of an environment variable.
    Environment(String),
}

/// One thing that is wrong, or worth a warning. Never shows the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The dotted key, such as `models[2].routes[0].provider`; empty where no key is at fault.
    pub key: String,
    /// `None` where the value is a default, or the key is not there.
    pub place: Option<Place>,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// `12:3: models[0].name: …`, without the parts that are not known.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(Place::File { line, column }) => write!(f, "{line}:{column}: ")?,
            Some(Place::Environment(name)) => write!(f, "{name}: ")?,
            None => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    file: Option<PathBuf>,
    errors: Vec<ConfigError>,
}

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|a, b| (a.place.is_none(), &a.place).cmp(&(b.place.is_none(), &b.place)));
        Self { file: None, errors }
    }

    /// One error that is about the file as a whole.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
        let error = ConfigError { key: String::new(), place: None, message };
        Self { file: Some(path.to_owned()), errors: vec![error] }
    }

    pub(super) fn in_file(self, path: &Path) -> Self {
        Self { file: Some(path.to_owned()), ..self }
    }

    /// Says that the errors come of keeping `sections` until a restart.
    pub(super) fn without_restart(mut self, sections: &[&str]) -> Self {
        let message = format!(
            "what has changed does not go with the running {}, which only a restart changes; \
             restart tollgate",
            sections.join(", ")
        );
        self.errors.insert(0, ConfigError { key: String::new(), place: None, message });
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.errors.iter()
    }

    /// Each error as a line of its own, with the file before it as compilers do.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.errors.iter().map(|error| match (&self.file, &error.place) {
            // The variable is where to look, not the file.
            (_, Some(Place::Environment(_))) | (None, _) => error.to_string(),
            (Some(file), Some(Place::File { .. })) => format!("{}:{error}", file.display()),
            (Some(file), None) => format!("{}: {error}", file.display()),
        })
    }
}

/// One error a line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&line)?;
        }
        Ok(())
    }
}
