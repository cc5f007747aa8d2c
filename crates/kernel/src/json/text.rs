//! What a string token says once its escapes are read.
//!
//! Invariant: an escaped surrogate pair is one character; a half without its partner stays
//! visible as [`Piece::Lone`], so every caller decides about it and none loses it silently.

use std::borrow::Cow;

use super::Defect;

/// A string token of well-formed JSON, quotes included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoted<'a> {
    raw: &'a str,
    escaped: bool,
}

/// A stretch of a decoded string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Char(char),
    Lone(u16),
}

impl Piece<'_> {
    /// Its length in UTF-8, counting half a surrogate pair as a code point of its own.
    pub(super) fn wtf8_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Char(char) => char.len_utf8(),
            Self::Lone(_) => 3,
        }
    }
}

impl<'a> Quoted<'a> {
    pub(super) fn new(raw: &'a str, escaped: bool) -> Self {
        Self { raw, escaped }
    }

    pub(super) fn raw(&self) -> &'a str {
        self.raw
    }

    pub(super) fn pieces(&self) -> Pieces<'a> {
        Pieces {
            rest: self.inner(),
            escaped: self.escaped,
        }
    }

    /// The text it says. `at` is where the token starts, for the error.
    pub(super) fn decode(&self, at: usize) -> Result<Cow<'a, str>, Defect> {
        if !self.escaped {
            return Ok(Cow::Borrowed(self.inner()));
        }
        let mut decoded = String::with_capacity(self.raw.len());
        for piece in self.pieces() {
            match piece {
                Piece::Text(text) => decoded.push_str(text),
                Piece::Char(char) => decoded.push(char),
                Piece::Lone(_) => return Err(Defect::LoneSurrogate { at }),
            }
        }
        Ok(Cow::Owned(decoded))
    }

    fn inner(&self) -> &'a str {
        &self.raw[1..self.raw.len() - 1]
    }
}

#[derive(Debug)]
pub(super) struct Pieces<'a> {
    rest: &'a str,
    escaped: bool,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let run = if self.escaped {
            self.rest.find('\\').unwrap_or(self.rest.len())
        } else {
            self.rest.len()
        };
        if run > 0 {
            let (text, rest) = self.rest.split_at(run);
            self.rest = rest;
            return Some(Piece::Text(text));
        }
        Some(self.escape())
    }
}

impl<'a> Pieces<'a> {
    fn escape(&mut self) -> Piece<'a> {
        if let Some(unit) = self.unit() {
            return self.complete(unit);
        }
        let char = match self.rest.as_bytes()[1] {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            itself => char::from(itself),
        };
        self.rest = &self.rest[2..];
        Piece::Char(char)
    }

    /// Joins a code unit with the escaped other half that may follow it.
    fn complete(&mut self, unit: u16) -> Piece<'a> {
        if let Some(char) = char::from_u32(u32::from(unit)) {
            return Piece::Char(char);
        }
        let behind = self.rest;
        if let Some(second) = self.unit()
            && let Some(Ok(char)) = char::decode_utf16([unit, second]).next()
        {
            return Piece::Char(char);
        }
        self.rest = behind;
        Piece::Lone(unit)
    }

    /// Takes one `\uXXXX` if that is what comes next.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.rest.strip_prefix("\\u")?;
        let unit = u16::from_str_radix(digits.get(..4)?, 16).ok()?;
        self.rest = &digits[4..];
        Some(unit)
    }
}
