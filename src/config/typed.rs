//! Reads the types of [`super::section`] out of a tree of [`Node`]s.
//!
//! A serde deserializer of our own, because of what TOML's can't do: tell the key and place of
//! an error and never the value (it may be a secret), turn text of the environment into whatever
//! type is wanted, collect unknown keys along with the known ones beside them, and stand in for
//! what is wrong so that one error does not hide the next.

use std::{cell::RefCell, collections::btree_map, fmt, ops::RangeInclusive, slice};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{
    error::{ConfigError, Place},
    key::Key,
    node::{Node, Value},
    suggest,
};

/// The first value that did not fit.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Where; set by the innermost reader that the error passes.
    pub at: Option<(Key, Place)>,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// A required key of the table that `at` names is not there.
    Missing(&'static str),
    Wrong(String),
}

impl Misfit {
    fn or_at(self, key: &Key, place: &Place) -> Self {
        Self { at: self.at.or_else(|| Some((key.clone(), place.clone()))), ..self }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Missing(field) => write!(f, "{field} is missing"),
            What::Wrong(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, what: What::Wrong(message.to_string()) }
    }

    // Serde's own words for these two show the value.
    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("must be {expected}"))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("must be {expected}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { at: None, what: What::Missing(field) }
    }
}

/// Reads one node.
pub(super) struct Reader<'a> {
    pub node: &'a Node,
    pub key: Key,
    /// Gets an error for each unknown key.
    pub unknown: &'a RefCell<Vec<ConfigError>>,
}

impl<'a> Reader<'a> {
    fn child(&self, node: &'a Node, key: Key) -> Self {
        Self { node, key, unknown: self.unknown }
    }

    fn not(&self, wanted: &str) -> Misfit {
        let message = format!("must be {wanted}, not {}", self.node.value.kind());
        self.misfit(message)
    }

    fn misfit(&self, message: String) -> Misfit {
        Misfit { at: Some((self.key.clone(), self.node.place.clone())), what: What::Wrong(message) }
    }

    /// Runs `read` on what loose text spells as TOML; on anything else as it is.
    fn settled<T>(self, read: impl FnOnce(Reader<'_>) -> Result<T, Misfit>) -> Result<T, Misfit> {
        let (key, place) = (self.key.clone(), &self.node.place);
        let parsed = match &self.node.value {
            Value::Loose(text) => Node::from_loose(text, place),
            _ => None,
        };
        let settled = match &parsed {
            Some(node) => Reader { node, key: self.key, unknown: self.unknown },
            None => self,
        };
        read(settled).map_err(|misfit| misfit.or_at(&key, place))
    }

    fn integer<'de, V: Visitor<'de>>(
        self,
        allowed: RangeInclusive<i128>,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.settled(|reader| {
            let integer = match reader.node.value {
                Value::Integer(integer) => integer,
                Value::Hole => 1,
                _ => return Err(reader.not("a whole number")),
            };
            let fits = allowed.contains(&integer);
            match (fits, u64::try_from(integer), i64::try_from(integer)) {
                (true, Ok(integer), _) => visitor.visit_u64(integer),
                (true, _, Ok(integer)) => visitor.visit_i64(integer),
                _ => {
                    let (min, max) = (allowed.start(), allowed.end());
                    Err(reader.misfit(format!("must be a whole number from {min} to {max}")))
                }
            }
        })
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let (key, place) = (&self.key, &self.node.place);
        match &self.node.value {
            Value::Text(text) | Value::Loose(text) => visitor.visit_str(text),
            Value::Hole => visitor.visit_str(""),
            _ => Err(self.not("a string (in quotes)")),
        }
        .map_err(|misfit: Misfit| misfit.or_at(key, place))
    }

    fn unknown_key(&self, key: &Key, name: &str, node: &Node, known: &[&str]) {
        self.unknown.borrow_mut().push(ConfigError {
            key: key.to_string(),
            place: Some(node.place.clone()),
            message: format!("there is no such key; {}", suggest::remedy(name, known)),
        });
    }

    fn table<'de, V: Visitor<'de>>(
        self,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.node.value {
            Value::Table(table) => {
                visitor.visit_map(Entries { reader: &self, known, rest: table.iter(), value: None })
            }
            Value::Hole => {
                visitor.visit_map(Holes { reader: &self, rest: known.unwrap_or_default().iter() })
            }
            _ => Err(self.not("a table")),
        }
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.integer(<$type>::MIN.into()..=<$type>::MAX.into(), visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.settled(|reader| match &reader.node.value {
            Value::Text(text) | Value::Loose(text) | Value::Datetime(text) => {
                visitor.visit_str(text)
            }
            Value::Integer(_) => reader.deserialize_i64(visitor),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Bool(boolean) => visitor.visit_bool(*boolean),
            Value::Array(_) => reader.deserialize_seq(visitor),
            Value::Table(_) => reader.table(None, visitor),
            Value::Hole => visitor.visit_str(""),
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.settled(|reader| match reader.node.value {
            Value::Bool(boolean) => visitor.visit_bool(boolean),
            Value::Hole => visitor.visit_bool(false),
            _ => Err(reader.not("true or false")),
        })
    }

    integers! {
        deserialize_u8: u8 deserialize_u16: u16 deserialize_u32: u32 deserialize_u64: u64
        deserialize_i8: i8 deserialize_i16: i16 deserialize_i32: i32 deserialize_i64: i64
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.settled(|reader| match reader.node.value {
            Value::Float(float) => visitor.visit_f64(float),
            #[expect(clippy::cast_precision_loss, reason = "a price in whole dollars is exact")]
            Value::Integer(integer) => visitor.visit_f64(integer as f64),
            Value::Hole => visitor.visit_f64(0.0),
            _ => Err(reader.not("a number")),
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.text(visitor)
    }

    /// TOML has no null, so what is there is some.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.settled(|reader| match &reader.node.value {
            Value::Array(array) => {
                visitor.visit_seq(Elements { reader: &reader, rest: array.iter().enumerate() })
            }
            Value::Hole => {
                visitor.visit_seq(Elements { reader: &reader, rest: [].iter().enumerate() })
            }
            _ => Err(reader.not("an array, such as [\"a\", \"b\"]")),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.settled(|reader| reader.table(None, visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.settled(|reader| reader.table(Some(fields), visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let text = match &self.node.value {
            Value::Text(text) | Value::Loose(text) => text.as_str(),
            Value::Hole => variants.first().copied().unwrap_or_default(),
            _ => return Err(self.not(&format!("one of {}", suggest::list(variants)))),
        };
        if !variants.contains(&text) {
            let hint = suggest::did_you_mean(text, variants).map(|hint| format!("; {hint}"));
            let variants = suggest::list(variants);
            let message = format!("must be one of {variants}{}", hint.unwrap_or_default());
            return Err(self.misfit(message));
        }
        visitor.visit_enum(text.into_deserializer())
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

struct Elements<'r, 'a> {
    reader: &'r Reader<'a>,
    rest: std::iter::Enumerate<slice::Iter<'a, Node>>,
}

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Misfit> {
        let Some((index, node)) = self.rest.next() else { return Ok(None) };
        seed.deserialize(self.reader.child(node, self.reader.key.index(index))).map(Some)
    }
}

struct Entries<'r, 'a> {
    reader: &'r Reader<'a>,
    /// `None` for a map, whose keys are free.
    known: Option<&'static [&'static str]>,
    rest: btree_map::Iter<'a, String, Node>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Misfit> {
        for (name, node) in self.rest.by_ref() {
            if let Some(known) = self.known
                && !known.contains(&name.as_str())
            {
                self.reader.unknown_key(&self.reader.key.name(name), name, node, known);
                continue;
            }
            self.value = Some((name, node));
            return seed.deserialize(name.as_str().into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Misfit> {
        let (name, node) =
            self.value.take().ok_or_else(|| de::Error::custom("a value was read twice"))?;
        seed.deserialize(self.reader.child(node, self.reader.key.name(name)))
    }
}

/// A table that is not there: every field of it is a hole in turn.
struct Holes<'r, 'a> {
    reader: &'r Reader<'a>,
    rest: slice::Iter<'static, &'static str>,
}

impl<'de> MapAccess<'de> for Holes<'_, '_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Misfit> {
        self.rest.next().map(|name| seed.deserialize((*name).into_deserializer())).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Misfit> {
        let Reader { node, ref key, .. } = *self.reader;
        seed.deserialize(self.reader.child(node, key.clone()))
    }
}
