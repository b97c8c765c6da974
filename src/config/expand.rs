//! `${VAR}` in the strings of the file. `$${` stands for `${`.

use std::collections::BTreeMap;

use super::{
    error::ConfigError,
    key::Key,
    node::{Node, Value},
};

/// Fills in every `${VAR}` below `tree`; one error for each string where that can't be done.
///
/// Such a string becomes loose text: it was written by the environment, so it may be a number
/// (`"${PORT}"`), and it is not shown. What could not be filled in becomes a hole.
pub(super) fn expand(tree: &mut Node, env: &BTreeMap<String, String>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    tree.walk(&Key::default(), &mut |key, node| {
        let Value::Text(text) = &node.value else { return };
        if !text.contains("${") {
            return;
        }
        node.value = match fill_in(text, env) {
            Ok(filled) if filled.used_environment => Value::Loose(filled.text),
            Ok(filled) => Value::Text(filled.text),
            Err(message) => {
                let place = Some(node.place.clone());
                errors.push(ConfigError { key: key.to_string(), place, message });
                Value::Hole
            }
        };
    });
    errors
}

struct Filled {
    text: String,
    used_environment: bool,
}

fn fill_in(text: &str, env: &BTreeMap<String, String>) -> Result<Filled, String> {
    let mut filled = Filled { text: String::with_capacity(text.len()), used_environment: false };
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let before = &rest[..start];
        let after = &rest[start + 2..];
        if let Some(before) = before.strip_suffix('$') {
            filled.text.push_str(before);
            filled.text.push_str("${");
            rest = after;
            continue;
        }
        let (name, after) = after
            .split_once('}')
            .filter(|(name, _)| is_variable(name))
            .ok_or("\"${\" begins a variable, \"${NAME}\"; write \"$${\" for the two characters")?;
        let value = env.get(name).ok_or_else(|| {
            format!("the environment variable {name} is not set; set it, or give the value here")
        })?;
        filled.text.push_str(before);
        filled.text.push_str(value);
        filled.used_environment = true;
        rest = after;
    }
    filled.text.push_str(rest);
    Ok(filled)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
