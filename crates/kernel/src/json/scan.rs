//! A pull scanner: bytes in, well-formed tokens out, one pass, no recursion.
//!
//! Invariant: a token is handed out only where RFC 8259 allows it, and `Ok(None)` only after
//! exactly one complete value with nothing but white space behind it. Tokens borrow the text as
//! sent; the scanner decodes nothing and allocates nothing up to 64 levels of nesting.

use super::text::Quoted;
use super::{Defect, JsonKind};

#[derive(Debug, Clone, Copy)]
pub(super) enum JsonToken<'a> {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Key(Quoted<'a>),
    String(Quoted<'a>),
    Number(&'a str),
    True,
    False,
    Null,
}

impl JsonToken<'_> {
    /// The kind of the value this token belongs to.
    pub(super) fn kind(&self) -> JsonKind {
        match self {
            Self::ObjectStart | Self::ObjectEnd => JsonKind::Object,
            Self::ArrayStart | Self::ArrayEnd => JsonKind::Array,
            Self::Key(_) | Self::String(_) => JsonKind::String,
            Self::Number(_) => JsonKind::Number,
            Self::True | Self::False => JsonKind::Bool,
            Self::Null => JsonKind::Null,
        }
    }
}

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    token_at: usize,
    expect: Expect,
    nesting: Nesting,
    depth_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    SeparatorOrEnd,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8], depth_max: usize) -> Result<Self, Defect> {
        let text = str::from_utf8(text).map_err(|error| Defect::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        if text.starts_with('\u{feff}') {
            return Err(Defect::ByteOrderMark);
        }
        Ok(Self::over(text, depth_max))
    }

    /// Scans text that is known to be UTF-8.
    pub(super) fn over(text: &'a str, depth_max: usize) -> Self {
        Self {
            text,
            at: 0,
            token_at: 0,
            expect: Expect::Value,
            nesting: Nesting::default(),
            depth_max,
        }
    }

    /// Where the last token starts.
    pub(super) fn token_at(&self) -> usize {
        self.token_at
    }

    /// The text from `start` to the end of the last token.
    pub(super) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// How many containers are open after the last token.
    pub(super) fn depth(&self) -> usize {
        self.nesting.depth
    }

    pub(super) fn next(&mut self) -> Result<Option<JsonToken<'a>>, Defect> {
        // The end of the last token must stay visible to `since`, so trailing white space is
        // looked at without moving past it.
        if self.expect == Expect::SeparatorOrEnd && self.nesting.depth == 0 {
            let end = self.after_space(self.at);
            return if end == self.text.len() {
                Ok(None)
            } else {
                Err(Defect::Trailing { at: end })
            };
        }
        self.skip_space();
        if self.expect == Expect::SeparatorOrEnd {
            match (self.peek(), self.nesting.in_object) {
                (Some(b','), in_object) => {
                    self.at += 1;
                    self.skip_space();
                    self.expect = if in_object {
                        Expect::Key
                    } else {
                        Expect::Value
                    };
                }
                (Some(b'}'), true) | (Some(b']'), false) => return Ok(Some(self.close())),
                _ => return Err(self.defect()),
            }
        }
        let Some(byte) = self.peek() else {
            return Err(match (self.expect, self.nesting.depth) {
                (Expect::Value, 0) => Defect::Empty,
                _ => Defect::Truncated,
            });
        };
        self.token_at = self.at;
        match (self.expect, byte) {
            (Expect::KeyOrEnd, b'}') | (Expect::ValueOrEnd, b']') => Ok(Some(self.close())),
            (Expect::KeyOrEnd | Expect::Key, b'"') => self.key().map(Some),
            (Expect::KeyOrEnd | Expect::Key, _) => Err(self.defect()),
            (_, b'{') => self.open(true).map(Some),
            (_, b'[') => self.open(false).map(Some),
            (_, byte) => {
                let token = self.scalar(byte)?;
                self.expect = Expect::SeparatorOrEnd;
                Ok(Some(token))
            }
        }
    }

    fn open(&mut self, object: bool) -> Result<JsonToken<'a>, Defect> {
        if self.nesting.depth >= self.depth_max {
            return Err(Defect::TooDeep {
                max: self.depth_max,
            });
        }
        self.nesting.push(object);
        self.at += 1;
        let (expect, token) = if object {
            (Expect::KeyOrEnd, JsonToken::ObjectStart)
        } else {
            (Expect::ValueOrEnd, JsonToken::ArrayStart)
        };
        self.expect = expect;
        Ok(token)
    }

    fn close(&mut self) -> JsonToken<'a> {
        let token = if self.nesting.in_object {
            JsonToken::ObjectEnd
        } else {
            JsonToken::ArrayEnd
        };
        self.nesting.pop();
        self.token_at = self.at;
        self.at += 1;
        self.expect = Expect::SeparatorOrEnd;
        token
    }

    fn key(&mut self) -> Result<JsonToken<'a>, Defect> {
        let key = self.quoted()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.defect());
        }
        self.at += 1;
        self.expect = Expect::Value;
        Ok(JsonToken::Key(key))
    }

    fn scalar(&mut self, first: u8) -> Result<JsonToken<'a>, Defect> {
        match first {
            b'"' => self.quoted().map(JsonToken::String),
            b'-' | b'0'..=b'9' => self.number().map(JsonToken::Number),
            b't' => self.literal("true", JsonToken::True),
            b'f' => self.literal("false", JsonToken::False),
            b'n' => self.literal("null", JsonToken::Null),
            _ => Err(self.defect()),
        }
    }

    fn literal(&mut self, word: &str, token: JsonToken<'a>) -> Result<JsonToken<'a>, Defect> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.defect());
        }
        self.at += word.len();
        Ok(token)
    }

    fn quoted(&mut self) -> Result<Quoted<'a>, Defect> {
        let start = self.at;
        let mut escaped = false;
        self.at += 1;
        loop {
            self.at += plain_run(&self.text.as_bytes()[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Quoted::new(self.since(start), escaped));
                }
                Some(b'\\') => {
                    self.escape()?;
                    escaped = true;
                }
                _ => return Err(self.defect()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Defect> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.defect());
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.defect()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, Defect> {
        let start = self.at;
        self.skip_if(|byte| byte == b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.skip_if(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.skip_if(|byte| matches!(byte, b'e' | b'E')) {
            self.skip_if(|byte| matches!(byte, b'+' | b'-'));
            self.digits()?;
        }
        // `01` and `1.2.3` are malformed numbers, not a number with something behind it.
        match self.peek() {
            Some(b'0'..=b'9' | b'.' | b'-' | b'+') => Err(self.defect()),
            _ => Ok(self.since(start)),
        }
    }

    fn digits(&mut self) -> Result<(), Defect> {
        if !self.skip_if(|byte| byte.is_ascii_digit()) {
            return Err(self.defect());
        }
        while self.skip_if(|byte| byte.is_ascii_digit()) {}
        Ok(())
    }

    fn skip_if(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        self.at = self.after_space(self.at);
    }

    fn after_space(&self, mut at: usize) -> usize {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
            at += 1;
        }
        at
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn defect(&self) -> Defect {
        if self.at >= self.text.len() {
            Defect::Truncated
        } else {
            Defect::Syntax { at: self.at }
        }
    }
}

/// How many leading bytes are neither a quote, a backslash nor a control character.
///
/// Looks at eight bytes at a time. The classic zero-byte trick can report a byte wrongly only
/// above one it reports rightly, so the lowest report is always true.
fn plain_run(bytes: &[u8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, bound: u8| word.wrapping_sub(EACH * u64::from(bound)) & !word & HIGH;

    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = below(word ^ (EACH * u64::from(b'"')), 1);
        let backslash = below(word ^ (EACH * u64::from(b'\\')), 1);
        let stops = below(word, 0x20) | quote | backslash;
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes
        .get(at)
        .is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
    {
        at += 1;
    }
    at
}

/// Which of the open containers are objects: one bit each, the innermost 64 without allocation.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_object: bool,
    outer: u64,
    spilled: Vec<u64>,
}

impl Nesting {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.spilled.push(self.outer);
        }
        self.outer = self.outer << 1 | u64::from(self.in_object);
        self.in_object = object;
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.in_object = self.outer & 1 == 1;
        self.outer >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer = self.spilled.pop().expect("pushed at this depth");
        }
    }
}
