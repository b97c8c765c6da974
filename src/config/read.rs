//! From a tree to a [`Config`], with every error on the way instead of the first alone.

use std::{cell::RefCell, collections::BTreeSet};

use serde::Deserialize;

use super::{
    Config,
    error::{ConfigError, Place},
    key::{Key, Step},
    node::{Node, Value},
    typed::{Misfit, Reader, What},
};

/// More are not looked for: each takes another reading.
const MAX_ERRORS: usize = 200;

pub(super) struct Reading {
    /// Where there were errors, a stand-in is read in the place of each; `None` where there was
    /// no going on.
    pub config: Option<Config>,
    pub errors: Vec<ConfigError>,
    /// The keys that hold a stand-in.
    pub holes: BTreeSet<String>,
}

/// Serde stops at the first error. So each is noted, a hole is put in its place, and the whole is
/// read again until it fits.
pub(super) fn read(tree: &mut Node) -> Reading {
    let mut errors = Vec::new();
    let mut holes = BTreeSet::new();
    tree.walk(&Key::default(), &mut |key, node| {
        if matches!(node.value, Value::Hole) {
            holes.insert(key.to_string());
        }
    });
    for _ in 0..MAX_ERRORS {
        let unknown = RefCell::new(Vec::new());
        let reader = Reader { node: tree, key: Key::default(), unknown: &unknown };
        match Config::deserialize(reader) {
            Ok(config) => {
                errors.append(&mut unknown.into_inner());
                return Reading { config: Some(config), errors, holes };
            }
            Err(misfit) => match patch(tree, misfit, &mut holes) {
                Patch::Noted(error) => errors.push(error),
                Patch::Silent => {}
                Patch::Impossible(error) => {
                    errors.extend(error);
                    errors.append(&mut unknown.into_inner());
                    return Reading { config: None, errors, holes };
                }
            },
        }
    }
    Reading { config: None, errors, holes }
}

enum Patch {
    Noted(ConfigError),
    /// A stand-in did not fit itself and was taken away: its default is next.
    Silent,
    /// There is no default either. The error, unless it was noted before.
    Impossible(Option<ConfigError>),
}

fn patch(tree: &mut Node, misfit: Misfit, holes: &mut BTreeSet<String>) -> Patch {
    let (table, place) =
        misfit.at.unwrap_or_else(|| (Key::default(), Place::File { line: 1, column: 1 }));
    let (key, missing, message) = match misfit.what {
        What::Missing(field) => {
            (table.name(field), true, "is required, and missing; add it".to_owned())
        }
        What::Wrong(message) => (table.clone(), false, with_example(&table, message)),
    };
    let name = key.to_string();
    let error = ConfigError { key: name.clone(), place: Some(place.clone()), message };

    let (above, below) = key.0.split_at(tree.depth_of(&key.0));
    let Some(node) = tree.get_mut(above) else { return Patch::Impossible(Some(error)) };
    match (&mut node.value, below) {
        (Value::Hole, _) => take_away(tree, above),
        (Value::Table(table), [Step::Name(field)]) if missing => {
            if !holes.insert(name) {
                return Patch::Impossible(None);
            }
            table.insert(field.clone(), Node { value: Value::Hole, place });
            Patch::Noted(error)
        }
        // Below loose text there are no nodes: then all of that text is the hole.
        (value, _) => {
            *value = Value::Hole;
            holes.insert(Key(above.to_vec()).to_string());
            Patch::Noted(error)
        }
    }
}

fn take_away(tree: &mut Node, steps: &[Step]) -> Patch {
    let Some((Step::Name(name), above)) = steps.split_last() else {
        return Patch::Impossible(None);
    };
    match tree.get_mut(above).map(|node| &mut node.value) {
        Some(Value::Table(table)) => {
            table.remove(name);
            Patch::Silent
        }
        _ => Patch::Impossible(None),
    }
}

/// The parsers of addresses only say that something is not one.
fn with_example(key: &Key, message: String) -> String {
    let name = key.0.iter().rev().find_map(|step| match step {
        Step::Name(name) => Some(name.as_str()),
        Step::Index(_) => None,
    });
    match name {
        Some("listen" | "admin_listen") => {
            format!("{message}; write an address and a port, such as \"127.0.0.1:8080\"")
        }
        Some("trusted_proxies") => format!("{message}; write a network, such as \"10.0.0.0/8\""),
        _ => message,
    }
}
