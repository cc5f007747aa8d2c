//! The parser: JSON as RFC 8259 and ECMAScript define it, and nothing more.
//!
//! Invariant: no input causes a panic, and the recursion is bounded by [`DEPTH_MAX`].

use super::{BeamObject, BeamString, BeamValue};

/// How many arrays and objects may be open at once.
pub const DEPTH_MAX: usize = 64;

/// Why a text is not read. Positions are byte offsets; the text itself is never repeated, because
/// it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("not valid UTF-8 at byte {at}")]
    NotUtf8 { at: usize },
    #[error("not valid JSON at byte {at}")]
    Syntax { at: usize },
    #[error("the JSON value ends too early")]
    Truncated,
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("something follows the JSON value at byte {at}")]
    Trailing { at: usize },
}

/// Reads exactly one JSON value.
pub fn parse(text: &[u8]) -> Result<BeamValue, TextError> {
    let text = str::from_utf8(text).map_err(|error| TextError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let mut parser = TextParser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(TextError::Trailing { at: parser.at }),
    }
}

struct TextParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TextParser<'a> {
    /// `depth` is the number of arrays and objects around the value.
    fn value(&mut self, depth: usize) -> Result<BeamValue, TextError> {
        self.skip_space();
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(TextError::TooDeep),
            Some(b'{') => self.object(depth + 1).map(BeamValue::Object),
            Some(b'[') => self.array(depth + 1).map(BeamValue::Array),
            Some(b'"') => self.string().map(BeamValue::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(BeamValue::Number),
            Some(b't') => self.literal("true", BeamValue::Bool(true)),
            Some(b'f') => self.literal("false", BeamValue::Bool(false)),
            Some(b'n') => self.literal("null", BeamValue::Null),
            _ => Err(self.error()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<BeamObject, TextError> {
        let mut members = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.take(b'}') {
            return Ok(BeamObject::new());
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error());
            }
            let key = self.string()?;
            self.skip_space();
            self.expect(b':')?;
            members.push((key, self.value(depth)?));
            self.skip_space();
            if self.take(b'}') {
                return Ok(members.into_iter().collect());
            }
            self.expect(b',')?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<BeamValue>, TextError> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.take(b']') {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(items);
            }
            self.expect(b',')?;
        }
    }

    fn string(&mut self) -> Result<BeamString, TextError> {
        self.at += 1;
        let plain = self.plain();
        if self.take(b'"') {
            return Ok(plain.into());
        }
        // With escapes, halves of a surrogate pair may meet: join them as code units.
        let mut units: Vec<u16> = plain.encode_utf16().collect();
        loop {
            if self.take(b'"') {
                return Ok(BeamString::from_units(units));
            }
            self.expect(b'\\')?;
            units.push(self.escape()?);
            units.extend(self.plain().encode_utf16());
        }
    }

    /// The text up to a quote, a backslash, a control character or the end.
    fn plain(&mut self) -> &'a str {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        self.at = start + rest.iter().position(stop).unwrap_or(rest.len());
        // All stops are ASCII, so this is a boundary between characters.
        &self.text[start..self.at]
    }

    /// The code unit of the escape whose backslash was just read.
    fn escape(&mut self) -> Result<u16, TextError> {
        let char = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.hex_unit();
            }
            Some(itself @ (b'"' | b'\\' | b'/')) => itself,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            _ => return Err(self.error()),
        };
        self.at += 1;
        Ok(char.into())
    }

    fn hex_unit(&mut self) -> Result<u16, TextError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.and_then(|digit| u16::try_from(digit).ok());
            unit = unit << 4 | digit.ok_or_else(|| self.error())?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<f64, TextError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        // Rust reads every number of JSON, and rounds as ECMAScript does.
        let token = &self.text[start..self.at];
        token.parse().map_err(|_| TextError::Syntax { at: start })
    }

    fn digits(&mut self) -> Result<(), TextError> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.error());
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str, value: BeamValue) -> Result<BeamValue, TextError> {
        word.bytes()
            .try_for_each(|byte| self.expect(byte))
            .map(|()| value)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), TextError> {
        if self.take(wanted) {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self) -> TextError {
        match self.peek() {
            Some(_) => TextError::Syntax { at: self.at },
            None => TextError::Truncated,
        }
    }
}
