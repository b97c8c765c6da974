//! A configuration before it has types: TOML's values, each with the place it was written at.

use std::collections::BTreeMap;

use toml::{
    Spanned,
    de::{DeInteger, DeTable, DeValue},
};

use super::{
    error::{ConfigError, Place},
    key::{Key, Step},
};

pub(super) struct Node {
    pub value: Value,
    pub place: Place,
}

pub(super) enum Value {
    /// A string of the file, as it stands there.
    Text(String),
    /// Text out of the environment: a string where one is wanted, else read as TOML. It is never
    /// shown, since it may be a secret.
    Loose(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
    /// Stands in for what was found wrong, as whatever is wanted, so that reading goes on.
    Hole,
}

impl Value {
    /// For "must be …, not …".
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Loose(_) | Self::Hole => "this text",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Datetime(_) => "a date",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

impl Node {
    /// Parses a whole file.
    ///
    /// # Errors
    /// Every syntax error in it. They tell what was expected and where, never what stands there.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<ConfigError>> {
        let lines = Lines::of(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            let at = |offset| lines.place(offset);
            return Ok(Self { value: Value::table(table.into_inner(), &at), place: at(0) });
        }
        let errors = errors.iter().map(|error| ConfigError {
            key: String::new(),
            place: error.span().map(|span| lines.place(span.start)),
            message: format!("not TOML: {}", error.message()),
        });
        Err(errors.collect())
    }

    /// Text of the environment as the TOML value that it spells, or `None` if it spells none.
    pub(super) fn from_loose(text: &str, place: &Place) -> Option<Self> {
        let value = DeValue::parse(text.trim()).ok()?;
        Some(Self::from_toml(value, &|_| place.clone()))
    }

    fn from_toml(value: Spanned<DeValue<'_>>, at: &impl Fn(usize) -> Place) -> Self {
        let place = at(value.span().start);
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(integer) => Value::Integer(saturated(&integer)),
            DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(boolean) => Value::Bool(boolean),
            DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
            DeValue::Array(array) => {
                Value::Array(array.into_iter().map(|node| Self::from_toml(node, at)).collect())
            }
            DeValue::Table(table) => Value::table(table, at),
        };
        Self { value, place }
    }

    pub(super) fn child(&self, step: &Step) -> Option<&Self> {
        match (&self.value, step) {
            (Value::Table(table), Step::Name(name)) => table.get(name),
            (Value::Array(array), Step::Index(index)) => array.get(*index),
            _ => None,
        }
    }

    fn child_mut(&mut self, step: &Step) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (Value::Table(table), Step::Name(name)) => table.get_mut(name),
            (Value::Array(array), Step::Index(index)) => array.get_mut(*index),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, steps: &[Step]) -> Option<&mut Self> {
        steps.iter().try_fold(self, |node, step| node.child_mut(step))
    }

    /// How many of `steps` lead to a node.
    pub(super) fn depth_of(&self, steps: &[Step]) -> usize {
        let mut node = self;
        for (depth, step) in steps.iter().enumerate() {
            match node.child(step) {
                Some(child) => node = child,
                None => return depth,
            }
        }
        steps.len()
    }

    /// Visits this node, which `key` leads to, and all below it; parents before children.
    pub(super) fn walk(&mut self, key: &Key, visit: &mut impl FnMut(&Key, &mut Self)) {
        visit(key, self);
        match &mut self.value {
            Value::Table(table) => {
                for (name, node) in table {
                    node.walk(&key.name(name), visit);
                }
            }
            Value::Array(array) => {
                for (index, node) in array.iter_mut().enumerate() {
                    node.walk(&key.index(index), visit);
                }
            }
            _ => {}
        }
    }
}

impl Value {
    fn table(table: DeTable<'_>, at: &impl Fn(usize) -> Place) -> Self {
        let entries = table.into_iter().map(|(name, value)| {
            let written = at(name.span().start);
            // The place of a key is what an editor is to jump to, not that of its value.
            let node = Node { place: written, ..Node::from_toml(value, at) };
            (name.into_inner().into_owned(), node)
        });
        Self::Table(entries.collect())
    }
}

/// No field takes more than 64 bits, so what is cut off here is refused as out of range later.
fn saturated(integer: &DeInteger<'_>) -> i128 {
    let negative = integer.as_str().starts_with('-');
    let limit = if negative { i128::MIN } else { i128::MAX };
    i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(limit)
}

/// Byte offsets to lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(end, _)| end + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        Place::File { line, column: before.chars().count() + 1 }
    }
}
