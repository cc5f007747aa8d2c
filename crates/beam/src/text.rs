//! JSON values that print exactly as ECMAScript's `JSON.stringify(JSON.parse(text))` does.
//!
//! Beam signs JSON text, and the signed text is what ECMAScript prints. Invariant: a value holds
//! everything that the printed form depends on: the order of members, duplicate keys, doubles, and
//! strings with half of a surrogate pair. There is no size limit here; callers limit the text.

mod object;
mod parse;
mod string;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

pub use object::BeamObject;
pub use parse::{DEPTH_MAX, TextError, parse};
pub use string::BeamString;

/// A JSON value with ECMAScript's order of members and ECMAScript's numbers.
#[derive(Clone, PartialEq)]
pub enum BeamValue {
    Null,
    Bool(bool),
    /// Infinite if the text had a number beyond all doubles; such a value prints as `null`.
    Number(f64),
    String(BeamString),
    Array(Vec<Self>),
    Object(BeamObject),
}

impl BeamValue {
    /// An object with these members, in ECMAScript's order.
    pub fn object<K: Into<BeamString>, const N: usize>(members: [(K, Self); N]) -> Self {
        Self::Object(
            members
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        )
    }

    /// The compact text that `JSON.stringify` prints.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        write::write(self, write::Escapes::Required, &mut out);
        out
    }

    /// The same text with every character outside printable ASCII escaped, as Python's
    /// `json.dumps` prints strings by default. Numbers and the order of members stay ECMAScript's.
    pub fn to_ascii_text(&self) -> String {
        let mut out = String::new();
        write::write(self, write::Escapes::NonAscii, &mut out);
        out
    }

    /// The value with the keys of all objects sorted by UTF-16 code units.
    ///
    /// Keys that are array indices still precede all others, because the sorted object is an
    /// ECMAScript object again. `sorted().to_text()` is equal for equal content.
    #[must_use]
    pub fn sorted(&self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.iter().map(Self::sorted).collect()),
            Self::Object(object) => Self::Object(object.sorted()),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => self.clone(),
        }
    }

    /// Whether both have the same content. The order of members does not count, the order of
    /// array elements does.
    pub fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(ours), Self::Array(theirs)) => {
                ours.len() == theirs.len()
                    && ours.iter().zip(theirs).all(|(a, b)| a.same_content(b))
            }
            (Self::Object(ours), Self::Object(theirs)) => ours.same_content(theirs),
            _ => self == other,
        }
    }

    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    /// The text of a string; `None` also for a string with half of a surrogate pair.
    pub fn as_str(&self) -> Option<&str> {
        let Self::String(string) = self else {
            return None;
        };
        string.as_str()
    }

    pub fn as_string(&self) -> Option<&BeamString> {
        let Self::String(string) = self else {
            return None;
        };
        Some(string)
    }

    /// The value of a number, which may be infinite.
    pub fn as_f64(&self) -> Option<f64> {
        let Self::Number(number) = self else {
            return None;
        };
        Some(*number)
    }

    pub fn as_bool(&self) -> Option<bool> {
        let Self::Bool(value) = self else { return None };
        Some(*value)
    }

    pub fn as_array(&self) -> Option<&[Self]> {
        let Self::Array(items) = self else {
            return None;
        };
        Some(items)
    }

    pub fn as_object(&self) -> Option<&BeamObject> {
        let Self::Object(object) = self else {
            return None;
        };
        Some(object)
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}

/// Shows the kind and the size only: payloads carry secrets, and debug output reaches logs.
impl fmt::Debug for BeamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bool(_) => f.write_str("Bool"),
            Self::Number(_) => f.write_str("Number"),
            Self::String(string) => string.fmt(f),
            Self::Array(items) => write!(f, "Array({} items)", items.len()),
            Self::Object(object) => object.fmt(f),
        }
    }
}

impl From<bool> for BeamValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for BeamValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i64> for BeamValue {
    #[expect(
        clippy::cast_precision_loss,
        reason = "every number of ECMAScript is a double"
    )]
    fn from(integer: i64) -> Self {
        Self::Number(integer as f64)
    }
}

impl From<&str> for BeamValue {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for BeamValue {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<BeamString> for BeamValue {
    fn from(string: BeamString) -> Self {
        Self::String(string)
    }
}

impl From<Vec<Self>> for BeamValue {
    fn from(items: Vec<Self>) -> Self {
        Self::Array(items)
    }
}

impl From<BeamObject> for BeamValue {
    fn from(object: BeamObject) -> Self {
        Self::Object(object)
    }
}

/// `null` for `None`.
impl<T: Into<Self>> From<Option<T>> for BeamValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
