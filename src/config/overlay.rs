//! `TOLLGATE__SECTION__KEY=value` laid over the file.
//!
//! Names are split at `__` and lowercased; a number is an index into an array, and the next free
//! one appends. A value is text where text is wanted, else it is read as TOML, so that
//! `TOLLGATE__PROVIDERS__0__API_KEY`, `…__SERVER__DRAIN_S=5` and
//! `…__AUTH__ISSUERS__0__AUDIENCE=["a","b"]` all do. `${VAR}` is not filled in here: a shell has
//! its own.

use std::collections::BTreeMap;

use super::{
    error::{ConfigError, Place},
    key::{Key, Step},
    node::{Node, Value},
};

const PREFIX: &str = "TOLLGATE__";

/// Deeper than any key is.
const MAX_STEPS: usize = 12;

/// Lays every `TOLLGATE__` variable over `tree`; one error for each that has no place there.
pub(super) fn overlay(tree: &mut Node, env: &BTreeMap<String, String>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut entries = Vec::new();
    for (variable, value) in env {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        match key_of(name) {
            Some(key) => entries.push((key, variable, value)),
            None => errors.push(ConfigError {
                key: String::new(),
                place: Some(Place::Environment(variable.clone())),
                message: "names no key; write it as TOLLGATE__SECTION__KEY".to_owned(),
            }),
        }
    }
    // Parents before children, and indices by number, so that appending goes in order.
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (key, variable, value) in entries {
        let place = Place::Environment(variable.clone());
        let node = Node { value: Value::Loose(value.clone()), place: place.clone() };
        if let Err(message) = put(tree, &key.0, node) {
            errors.push(ConfigError { key: key.to_string(), place: Some(place), message });
        }
    }
    errors
}

fn key_of(name: &str) -> Option<Key> {
    let steps: Vec<&str> = name.split("__").collect();
    let sane = steps.len() <= MAX_STEPS && steps.iter().all(|step| !step.is_empty());
    let step = |text: &str| match text.parse() {
        Ok(index) => Step::Index(index),
        Err(_) => Step::Name(text.to_ascii_lowercase()),
    };
    sane.then(|| Key(steps.into_iter().map(step).collect()))
}

fn put(node: &mut Node, steps: &[Step], new: Node) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = new;
        return Ok(());
    };
    if let Value::Loose(text) = &node.value
        && let Some(parsed) = Node::from_loose(text, &node.place)
    {
        *node = parsed;
    }
    let kind = node.value.kind();
    match (&mut node.value, step) {
        (Value::Table(table), Step::Name(name)) => {
            let child = table.entry(name.clone()).or_insert_with(|| parent(rest, &new.place));
            put(child, rest, new)
        }
        (Value::Array(array), Step::Index(index)) => {
            let len = array.len();
            if *index == len {
                array.push(parent(rest, &new.place));
            }
            let child = array.get_mut(*index).ok_or_else(|| {
                format!("there are only {len} entries before this one; the next index is {len}")
            })?;
            put(child, rest, new)
        }
        (Value::Array(_), Step::Name(_)) => {
            Err("an array is meant; give the entry's index after its name, from 0".to_owned())
        }
        _ => Err(format!("goes through a value that is {kind}, not a table or an array")),
    }
}

/// What is to hold `steps`, still empty.
fn parent(steps: &[Step], place: &Place) -> Node {
    let value = match steps.first() {
        Some(Step::Index(_)) => Value::Array(Vec::new()),
        Some(Step::Name(_)) => Value::Table(BTreeMap::new()),
        None => Value::Hole,
    };
    Node { value, place: place.clone() }
}
