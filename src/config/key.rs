//! A key's way through the configuration: `models[2].routes[0].provider`.

use std::fmt;

/// One step of a [`Key`]. Indices sort before names, and by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Index(usize),
    Name(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub Vec<Step>);

impl Key {
    pub(super) fn name(&self, name: &str) -> Self {
        self.then(Step::Name(name.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name(name) => {
                    let dot = if depth == 0 { "" } else { "." };
                    if is_bare(name) {
                        write!(f, "{dot}{name}")?;
                    } else {
                        write!(f, "{dot}{name:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Need TOML put no quotes around this key?
fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
