//! Strings of ECMAScript: sequences of UTF-16 code units, which are not always text.
//!
//! Invariant: each string has one representation. Code units are stored only if they contain half
//! of a surrogate pair, so equality of representations is equality of strings.

use std::fmt;

/// A string that may contain half of a surrogate pair.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BeamString(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Text(String),
    Units(Vec<u16>),
}

impl BeamString {
    /// The string of these code units; halves of surrogate pairs that are adjacent become one character.
    pub fn from_units(units: Vec<u16>) -> Self {
        match String::from_utf16(&units) {
            Ok(text) => Self(Form::Text(text)),
            Err(_) => Self(Form::Units(units)),
        }
    }

    /// The text; `None` if there is half of a surrogate pair in it.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Form::Text(text) => Some(text),
            Form::Units(_) => None,
        }
    }

    /// The text, with U+FFFD for each half of a surrogate pair.
    pub fn to_text_lossy(&self) -> String {
        match &self.0 {
            Form::Text(text) => text.clone(),
            Form::Units(units) => String::from_utf16_lossy(units),
        }
    }

    /// The UTF-16 code units, which is what ECMAScript compares.
    pub fn to_units(&self) -> Vec<u16> {
        match &self.0 {
            Form::Text(text) => text.encode_utf16().collect(),
            Form::Units(units) => units.clone(),
        }
    }

    /// The length that ECMAScript reports.
    pub fn units_len(&self) -> usize {
        match &self.0 {
            Form::Text(text) => text.encode_utf16().count(),
            Form::Units(units) => units.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.as_str().is_some_and(str::is_empty)
    }

    /// The characters, and in their places the halves of surrogate pairs.
    pub(super) fn for_each(&self, mut take: impl FnMut(Result<char, u16>)) {
        match &self.0 {
            Form::Text(text) => text.chars().for_each(|char| take(Ok(char))),
            Form::Units(units) => {
                for unit in char::decode_utf16(units.iter().copied()) {
                    take(unit.map_err(|half| half.unpaired_surrogate()));
                }
            }
        }
    }

    /// The value of a canonical array index: `0` to `4294967294` without leading zeros.
    pub(super) fn array_index(&self) -> Option<u32> {
        let text = self.as_str()?;
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || (text.len() > 1 && text.starts_with('0')) {
            return None;
        }
        text.parse().ok().filter(|&index| index < u32::MAX)
    }
}

impl From<&str> for BeamString {
    fn from(text: &str) -> Self {
        Self(Form::Text(text.to_owned()))
    }
}

impl From<String> for BeamString {
    fn from(text: String) -> Self {
        Self(Form::Text(text))
    }
}

impl PartialEq<str> for BeamString {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == Some(text)
    }
}

/// Shows the size only, for the reason given at [`super::BeamValue`].
impl fmt::Debug for BeamString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "String({} units)", self.units_len())
    }
}
