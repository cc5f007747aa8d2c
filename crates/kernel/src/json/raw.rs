//! One JSON value as it was sent: validated as a whole, and decoded only by its accessors.
//!
//! Invariant: a [`Raw`] always holds exactly one well-formed value without surrounding white
//! space, so every question about it has an answer and the token sent is never lost.

use std::borrow::Cow;
use std::fmt;

use super::scan::{JsonToken, Scanner};
use super::{Defect, JsonKind, Object, compact, number, object};

/// A view of one well-formed value inside a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a> {
    text: &'a str,
}

impl<'a> Raw<'a> {
    /// Checks that `text` is exactly one value.
    pub fn parse(text: &'a [u8], depth_max: usize) -> Result<Self, Defect> {
        let mut scanner = Scanner::new(text, depth_max)?;
        scanner.next()?;
        let start = scanner.token_at();
        while scanner.next()?.is_some() {}
        Ok(Self {
            text: scanner.since(start),
        })
    }

    /// Takes text that a scanner has just found to be one complete value.
    pub(super) fn trusted(text: &'a str) -> Self {
        Self { text }
    }

    /// The value as sent, white space inside it included.
    pub fn text(&self) -> &'a str {
        self.text
    }

    pub fn kind(&self) -> JsonKind {
        match self.text.as_bytes()[0] {
            b'{' => JsonKind::Object,
            b'[' => JsonKind::Array,
            b'"' => JsonKind::String,
            b't' | b'f' => JsonKind::Bool,
            b'n' => JsonKind::Null,
            _ => JsonKind::Number,
        }
    }

    pub fn is_null(&self) -> bool {
        self.kind() == JsonKind::Null
    }

    /// The decoded text; `None` if it is no string or not expressible as text.
    /// Use [`Raw::string`] to tell the two apart.
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        self.string().ok()
    }

    /// The decoded text, or why there is none.
    pub fn string(&self) -> Result<Cow<'a, str>, Defect> {
        match self.scanner().next()? {
            Some(JsonToken::String(quoted)) => quoted.decode(0),
            _ => Err(self.unexpected(JsonKind::String)),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The nearest double; `None` if it is no number or beyond the range of finite doubles.
    pub fn as_f64(&self) -> Option<f64> {
        self.number_token().and_then(number::finite)
    }

    /// The exact integer, however it is written: `3`, `3.0` and `30e-1` are the same.
    pub fn as_i64(&self) -> Option<i64> {
        self.number_token().and_then(number::exact_integer)
    }

    /// The elements in order; `None` if it is no array.
    pub fn items(&self) -> Option<Vec<Self>> {
        if self.kind() != JsonKind::Array {
            return None;
        }
        let children = object::children(&mut self.scanner()).expect("a Raw is well-formed");
        Some(children.list.into_iter().map(|child| child.value).collect())
    }

    /// The members; fails if it is no object or has a key that is not text.
    pub fn object(&self) -> Result<Object<'a>, Defect> {
        Object::from_children(object::children(&mut self.scanner())?)
    }

    /// The value with white space outside strings removed.
    pub fn compact(&self) -> String {
        let mut written = String::with_capacity(self.text.len());
        compact::write(&mut self.scanner(), &mut written).expect("a Raw is well-formed");
        written
    }

    pub(super) fn unexpected(&self, wanted: JsonKind) -> Defect {
        Defect::Unexpected {
            wanted,
            found: self.kind(),
        }
    }

    fn number_token(&self) -> Option<&'a str> {
        (self.kind() == JsonKind::Number).then_some(self.text)
    }

    // The depth was bounded when the Raw was made; asking again could only fail a good value.
    fn scanner(&self) -> Scanner<'a> {
        Scanner::over(self.text, usize::MAX)
    }
}

/// Shows the kind and size only: bodies carry secrets, and debug output reaches logs.
impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({:?}, {} bytes)", self.kind(), self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::DEPTH_MAX;

    fn raw(text: &str) -> Raw<'_> {
        Raw::parse(text.as_bytes(), DEPTH_MAX).unwrap()
    }

    #[test]
    fn a_value_is_trimmed_and_knows_its_kind() {
        for (text, kind) in [
            (" null ", JsonKind::Null),
            ("\ttrue", JsonKind::Bool),
            ("false\n", JsonKind::Bool),
            (" -1 ", JsonKind::Number),
            (" \" x \" ", JsonKind::String),
            (" [ 1 ] ", JsonKind::Array),
            (" { } ", JsonKind::Object),
        ] {
            assert_eq!(raw(text).kind(), kind);
            assert_eq!(raw(text).text(), text.trim());
        }
        assert_eq!(Raw::parse(b"1 1", 1), Err(Defect::Trailing { at: 2 }));
    }

    #[test]
    fn strings_are_decoded_and_borrowed_where_nothing_is_escaped() {
        assert!(matches!(
            raw(r#""plain é""#).as_str(),
            Some(Cow::Borrowed("plain é"))
        ));
        let escaped = raw(r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é""#);
        assert_eq!(escaped.as_str().unwrap(), "\"\\/\u{8}\u{c}\n\r\té😀é");
        assert_eq!(raw("1").as_str(), None);
    }

    #[test]
    fn a_lone_surrogate_is_reported_and_never_replaced() {
        for text in [
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#""a\uD83Dz""#,
            r#""\ud83d\u0041""#,
        ] {
            assert_eq!(raw(text).as_str(), None, "{text}");
            assert_eq!(raw(text).string(), Err(Defect::LoneSurrogate { at: 0 }));
        }
        let found = JsonKind::Null;
        let wanted = JsonKind::String;
        assert_eq!(
            raw("null").string(),
            Err(Defect::Unexpected { wanted, found })
        );
    }

    #[test]
    fn scalars_answer_only_for_their_own_kind() {
        assert_eq!(raw("true").as_bool(), Some(true));
        assert_eq!(raw("\"true\"").as_bool(), None);
        assert_eq!(raw("1.5").as_f64(), Some(1.5));
        assert_eq!(raw("1e400").as_f64(), None);
        assert_eq!(raw("\"1\"").as_f64(), None);
        assert_eq!(raw("1e2").as_i64(), Some(100));
        assert_eq!(raw("\"1\"").as_i64(), None);
    }

    #[test]
    fn items_and_members_are_views_of_the_same_text() {
        let items = raw("[ 1.0 , [ 2 , {} ] , \"a,b\" ]").items().unwrap();
        let texts: Vec<_> = items.iter().map(Raw::text).collect();
        assert_eq!(texts, ["1.0", "[ 2 , {} ]", "\"a,b\""]);
        assert_eq!(items[1].compact(), "[2,{}]");
        assert_eq!(raw("[]").items(), Some(Vec::new()));
        assert_eq!(raw("{}").items(), None);
        assert_eq!(
            raw(r#"{"a":{"b":[1]}}"#)
                .object()
                .unwrap()
                .get("a")
                .unwrap()
                .text(),
            r#"{"b":[1]}"#
        );
    }

    #[test]
    fn debug_output_keeps_the_content_to_itself() {
        assert_eq!(format!("{:?}", raw("\"secret\"")), "Raw(String, 8 bytes)");
    }
}
