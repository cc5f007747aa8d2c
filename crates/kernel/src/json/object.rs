//! The members of an object, in the order and with the tokens they were sent with.
//!
//! Invariant: no member is dropped; where a key is repeated, [`Object::get`] answers with the
//! last one, which is what the fingerprint compares as well.

use std::borrow::Cow;

use super::scan::{JsonToken, Scanner};
use super::text::Quoted;
use super::{Defect, JsonKind, Raw};

/// An object whose values are still text.
#[derive(Debug, Clone, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl<'a> Object<'a> {
    /// Checks that `text` is exactly one object and finds its members, in one pass.
    pub fn parse(text: &'a [u8], depth_max: usize) -> Result<Self, Defect> {
        let mut scanner = Scanner::new(text, depth_max)?;
        Self::from_children(children(&mut scanner)?)
    }

    pub(super) fn from_children(children: Children<'a>) -> Result<Self, Defect> {
        if children.of != JsonKind::Object {
            return Err(Defect::Unexpected {
                wanted: JsonKind::Object,
                found: children.of,
            });
        }
        let members = children.list.into_iter().map(|child| {
            let (key, at) = child.key.expect("every value of an object follows a key");
            Ok((key.decode(at)?, child.value))
        });
        Ok(Self {
            members: members.collect::<Result<_, Defect>>()?,
        })
    }

    /// The value of `key`; of several, the last.
    pub fn get(&self, key: &str) -> Option<Raw<'a>> {
        let found = self.members.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| *value)
    }

    /// All members as sent, duplicates included.
    pub fn members(&self) -> &[(Cow<'a, str>, Raw<'a>)] {
        &self.members
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// What lies directly inside a value; empty for scalars.
#[derive(Debug)]
pub(super) struct Children<'a> {
    pub(super) of: JsonKind,
    pub(super) list: Vec<Child<'a>>,
}

#[derive(Debug)]
pub(super) struct Child<'a> {
    /// The key and where it stands; none in arrays.
    pub(super) key: Option<(Quoted<'a>, usize)>,
    pub(super) value: Raw<'a>,
}

/// Scans a whole text and cuts out the values one level down.
pub(super) fn children<'a>(scanner: &mut Scanner<'a>) -> Result<Children<'a>, Defect> {
    let mut list = Vec::new();
    let mut of = None;
    let mut key = None;
    let mut start = 0;
    while let Some(token) = scanner.next()? {
        let first = of.is_none();
        of.get_or_insert(token.kind());
        let depth = scanner.depth();
        let complete = match token {
            JsonToken::Key(quoted) => {
                if depth == 1 {
                    key = Some((quoted, scanner.token_at()));
                }
                false
            }
            JsonToken::ObjectStart | JsonToken::ArrayStart => {
                if depth == 2 {
                    start = scanner.token_at();
                }
                false
            }
            JsonToken::ObjectEnd | JsonToken::ArrayEnd => depth == 1,
            JsonToken::String(_)
            | JsonToken::Number(_)
            | JsonToken::True
            | JsonToken::False
            | JsonToken::Null => {
                if depth == 1 {
                    start = scanner.token_at();
                }
                depth == 1
            }
        };
        if complete && !first {
            let value = Raw::trusted(scanner.since(start));
            list.push(Child {
                key: key.take(),
                value,
            });
        }
    }
    let of = of.expect("a scanner ends without defect only after a value");
    Ok(Children { of, list })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::DEPTH_MAX;

    fn parse(text: &str) -> Result<Object<'_>, Defect> {
        Object::parse(text.as_bytes(), DEPTH_MAX)
    }

    #[test]
    fn members_keep_order_and_tokens() {
        let object =
            parse(" { \"b\" : 1.50 , \"a\\u0062\" : { \"x\" : [ {} ] } ,\"\":\"\" } ").unwrap();
        let members: Vec<_> = object
            .members()
            .iter()
            .map(|(k, v)| (k.as_ref(), v.text()))
            .collect();
        assert_eq!(
            members,
            [("b", "1.50"), ("ab", "{ \"x\" : [ {} ] }"), ("", "\"\"")]
        );
        assert_eq!(object.len(), 3);
    }

    #[test]
    fn the_last_duplicate_wins_whichever_way_the_key_is_written() {
        let object = parse(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
        assert_eq!(object.get("a").unwrap().text(), "3");
        assert_eq!(object.get("c"), None);
        assert_eq!(object.members().len(), 3);
    }

    #[test]
    fn what_is_no_object_is_refused_by_kind_but_bad_text_first() {
        let wanted = JsonKind::Object;
        for (text, found) in [
            ("[1,[2]]", JsonKind::Array),
            ("7", JsonKind::Number),
            ("null", JsonKind::Null),
        ] {
            assert_eq!(
                parse(text).unwrap_err(),
                Defect::Unexpected { wanted, found }
            );
        }
        assert_eq!(parse("[1").unwrap_err(), Defect::Truncated);
        assert_eq!(parse("{} {}").unwrap_err(), Defect::Trailing { at: 3 });
        assert_eq!(
            parse(r#"{"a":{"b":}}"#).unwrap_err(),
            Defect::Syntax { at: 10 }
        );
        assert!(parse("{ }").unwrap().is_empty());
    }

    #[test]
    fn a_key_that_is_not_text_is_refused_with_its_place() {
        let defect = parse(r#"{"a":1,"\udc00":2}"#).unwrap_err();
        assert_eq!(defect, Defect::LoneSurrogate { at: 7 });
        assert!(parse(r#"{"a":{"\udc00":2}}"#).is_ok());
    }
}
