//! Laws that hold for every document, checked on generated ones.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{CanonicalError, DEPTH_MAX, Object, Raw, canonical, compact, fingerprint};

/// A document with unique keys; numbers are kept as tokens.
#[derive(Debug, Clone)]
enum Document {
    Scalar(String),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// One way to write a document down: white space, and if it is playful order and escapes.
struct Pen {
    choices: Vec<u8>,
    at: usize,
    playful: bool,
}

impl Pen {
    fn plain() -> Self {
        Self::spacious(vec![0])
    }

    fn spacious(choices: Vec<u8>) -> Self {
        Self {
            choices,
            at: 0,
            playful: false,
        }
    }

    fn playful(choices: Vec<u8>) -> Self {
        Self {
            playful: true,
            ..Self::spacious(choices)
        }
    }

    fn choose(&mut self, options: usize) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()]) % options
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n", "\t\r\n  "][self.choose(5)]
    }

    fn write(&mut self, document: &Document) -> String {
        let value = match document {
            Document::Scalar(token) => token.clone(),
            Document::Text(text) => self.quote(text),
            Document::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| self.write(item)).collect();
                format!("[{}{}]", self.space(), items.join(","))
            }
            Document::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if self.playful && !members.is_empty() {
                    let turn = self.choose(members.len());
                    members.rotate_left(turn);
                }
                let members = members.into_iter().map(|(key, value)| {
                    let key = self.quote(key);
                    format!(
                        "{}{key}{}:{}",
                        self.space(),
                        self.space(),
                        self.write(value)
                    )
                });
                let members: Vec<_> = members.collect();
                format!("{{{}{}}}", self.space(), members.join(","))
            }
        };
        format!("{}{value}{}", self.space(), self.space())
    }

    fn quote(&mut self, text: &str) -> String {
        let mut quoted = String::from("\"");
        for char in text.chars() {
            let must = matches!(char, '"' | '\\' | '\0'..' ');
            if must || self.playful && self.choose(4) == 3 {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write!(quoted, "\\u{unit:04x}").unwrap();
                }
            } else {
                quoted.push(char);
            }
        }
        quoted + "\""
    }
}

impl Document {
    fn scalars(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Scalar(_) | Self::Text(_) => vec![self],
            Self::Array(items) => items.iter_mut().flat_map(Self::scalars).collect(),
            Self::Object(members) => {
                let values = members.iter_mut().map(|(_, value)| value);
                values.flat_map(Self::scalars).collect()
            }
        }
    }

    fn change(&mut self) {
        match self {
            Self::Text(text) => text.push('x'),
            Self::Scalar(token) => match token.as_str() {
                "true" => *token = "false".into(),
                "false" => *token = "null".into(),
                "null" => *token = "true".into(),
                _ if token.contains(['.', 'e', 'E']) => token.push('7'),
                _ => token.push_str(".5"),
            },
            Self::Array(_) | Self::Object(_) => unreachable!("only scalars are changed"),
        }
    }
}

fn document() -> impl Strategy<Value = Document> {
    let number = "-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?";
    let word = prop_oneof![Just("null"), Just("true"), Just("false")];
    let leaf = prop_oneof![
        word.prop_map(|word| Document::Scalar(word.into())),
        number.prop_map(Document::Scalar),
        any::<String>().prop_map(Document::Text),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let members = prop::collection::btree_map(any::<String>(), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Document::Array),
            members.prop_map(|members| Document::Object(members.into_iter().collect())),
        ]
    })
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..50)
}

/// Text that is often almost JSON.
fn scribble() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        "[\\[\\]{}:, \"\\\\\n]",
        "-?[0-9]{0,3}[.eE]?[+-]?[0-9]{0,3}",
        "\"[a-zé\u{1}]{0,10}(\\\\[\"ntu/x])?[0-9a-g]{0,4}\"",
        "(true|false|null|\"a\":|\\[\\]|\\{\\})",
    ];
    prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn compact_takes_exactly_what_another_parser_takes(text in scribble()) {
        let other = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(compact(text.as_bytes(), DEPTH_MAX).is_ok(), other.is_ok(), "{:?}", text);
    }

    #[test]
    fn no_bytes_make_any_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let accepted = compact(&bytes, 4).is_ok();
        prop_assert_eq!(Raw::parse(&bytes, 4).is_ok(), accepted);
        prop_assert!(accepted <= fingerprint(&bytes).is_ok());
        let _ = (canonical(&bytes), Object::parse(&bytes, 4));
    }

    #[test]
    fn compact_removes_white_space_and_nothing_else(document in document(), choices in choices()) {
        let plain = Pen::plain().write(&document);
        let spaced = Pen::spacious(choices).write(&document);
        prop_assert_eq!(compact(plain.as_bytes(), DEPTH_MAX).unwrap(), plain.as_str());
        prop_assert_eq!(compact(spaced.as_bytes(), DEPTH_MAX).unwrap(), plain.as_str());
        prop_assert_eq!(Raw::parse(spaced.as_bytes(), DEPTH_MAX).unwrap().compact(), plain);
    }

    #[test]
    fn the_fingerprint_sees_meaning_only(document in document(), choices in choices()) {
        let plain = Pen::plain().write(&document);
        let fancy = Pen::playful(choices).write(&document);
        let expected = fingerprint(plain.as_bytes());
        prop_assert!(expected.is_ok());
        prop_assert_eq!(fingerprint(fancy.as_bytes()), expected);
        let stored = compact(fancy.as_bytes(), DEPTH_MAX).unwrap();
        prop_assert_eq!(fingerprint(stored.as_bytes()), expected);
    }

    #[test]
    fn changing_any_scalar_changes_the_fingerprint(document in document(), choice: prop::sample::Index) {
        let before = Pen::plain().write(&document);
        let mut changed = document;
        let mut scalars = changed.scalars();
        prop_assume!(!scalars.is_empty());
        let index = choice.index(scalars.len());
        scalars[index].change();
        let after = Pen::plain().write(&changed);
        prop_assert_ne!(fingerprint(before.as_bytes()), fingerprint(after.as_bytes()));
    }

    #[test]
    fn canonical_bytes_are_the_same_for_every_way_to_write_and_canonical_again(
        document in document(),
        choices in choices(),
    ) {
        let plain = Pen::plain().write(&document);
        let Ok(expected) = canonical(plain.as_bytes()) else {
            return Err(TestCaseError::fail("every generated document has a canonical form"));
        };
        prop_assert_eq!(canonical(Pen::playful(choices).write(&document).as_bytes()), Ok(expected.clone()));
        match canonical(&expected) {
            Ok(again) => prop_assert_eq!(again, expected),
            // Written with an exponent, printed as the plain integer that is refused on its own.
            Err(refusal) => {
                let expected_refusal = matches!(refusal, CanonicalError::UnsafeInteger { .. });
                prop_assert!(expected_refusal, "{}", refusal);
            }
        }
    }

    #[test]
    fn canonical_bytes_mean_what_the_text_meant(document in document()) {
        let plain = Pen::plain().write(&document);
        let bytes = canonical(plain.as_bytes()).unwrap();
        let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
        prop_assert_eq!(as_doubles(read(&bytes)), as_doubles(read(plain.as_bytes())));
    }
}

fn as_doubles(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) => number.as_f64().map(|double| double + 0.0).into(),
        Value::Array(items) => items.into_iter().map(as_doubles).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(key, value)| (key, as_doubles(value)))
                .collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}
