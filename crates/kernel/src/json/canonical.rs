//! RFC 8785 bytes: the one form of a value that is signed.
//!
//! Invariant: two texts have the same canonical bytes only if they mean the same to every reader,
//! so whatever readers disagree about is refused: plain integers a double cannot hold, numbers
//! beyond all doubles, duplicate members, lone surrogates.
//! A number such as `1e20` is written with an exponent and therefore accepted, but its canonical
//! form is a plain integer that would be refused in turn. Verify what was sent, not a re-encoding.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::scan::{JsonToken, Scanner};
use super::{DEPTH_MAX, Defect, number};

/// Why a text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    #[error(transparent)]
    Defect(#[from] Defect),
    #[error("the integer at byte {at} is beyond 2^53-1 and not exact everywhere; send a string")]
    UnsafeInteger { at: usize },
    #[error("the number at byte {at} is beyond the range of doubles")]
    NotFinite { at: usize },
    #[error("the member at byte {at} repeats a key")]
    DuplicateKey { at: usize },
}

/// The canonical bytes of exactly one JSON value, nested at most [`DEPTH_MAX`] deep.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let mut scanner = Scanner::new(text, DEPTH_MAX)?;
    let mut writer = Writer {
        out: String::with_capacity(text.len()),
        open: Vec::new(),
        members: Vec::new(),
    };
    while let Some(token) = scanner.next()? {
        writer.take(token, scanner.token_at())?;
    }
    Ok(writer.out.into_bytes())
}

/// The canonical bytes of a value that is not text any more.
///
/// A `Value` has forgotten duplicates and has rounded integers beyond 64 bits, so what came from
/// outside goes through [`canonical`] instead.
pub fn canonical_value(value: &serde_json::Value) -> Result<Vec<u8>, CanonicalError> {
    canonical(value.to_string().as_bytes())
}

struct Writer<'a> {
    out: String,
    open: Vec<Open>,
    members: Vec<Member<'a>>,
}

struct Open {
    content_from: usize,
    members_from: usize,
    object: bool,
}

/// One member as written to the output, with the comma behind it.
struct Member<'a> {
    key: Cow<'a, str>,
    text_at: usize,
    from: usize,
    end: usize,
}

impl<'a> Writer<'a> {
    fn take(&mut self, token: JsonToken<'a>, at: usize) -> Result<(), CanonicalError> {
        let complete = !matches!(
            token,
            JsonToken::ObjectStart | JsonToken::ArrayStart | JsonToken::Key(_)
        );
        match token {
            JsonToken::ObjectStart => self.start('{', true),
            JsonToken::ArrayStart => self.start('[', false),
            JsonToken::Key(quoted) => self.key(quoted.decode(at)?, at),
            JsonToken::ObjectEnd | JsonToken::ArrayEnd => self.end()?,
            JsonToken::String(quoted) => write_string(&quoted.decode(at)?, &mut self.out),
            JsonToken::Number(token) => self.number(token, at)?,
            JsonToken::True => self.out.push_str("true"),
            JsonToken::False => self.out.push_str("false"),
            JsonToken::Null => self.out.push_str("null"),
        }
        if complete && let Some(parent) = self.open.last() {
            self.out.push(',');
            if parent.object {
                let member = self.members.last_mut().expect("a value follows its key");
                member.end = self.out.len();
            }
        }
        Ok(())
    }

    fn start(&mut self, bracket: char, object: bool) {
        self.out.push(bracket);
        self.open.push(Open {
            content_from: self.out.len(),
            members_from: self.members.len(),
            object,
        });
    }

    fn key(&mut self, key: Cow<'a, str>, at: usize) {
        let from = self.out.len();
        write_string(&key, &mut self.out);
        self.out.push(':');
        self.members.push(Member {
            key,
            text_at: at,
            from,
            end: from,
        });
    }

    fn end(&mut self) -> Result<(), CanonicalError> {
        let open = self.open.pop().expect("the scanner closes what it opened");
        if open.object {
            self.sort(&open)?;
            self.members.truncate(open.members_from);
        }
        if self.out.len() > open.content_from {
            // The comma behind the last element.
            self.out.pop();
        }
        self.out.push(if open.object { '}' } else { ']' });
        Ok(())
    }

    fn sort(&mut self, open: &Open) -> Result<(), CanonicalError> {
        let members = &mut self.members[open.members_from..];
        let in_order = |pair: &[Member<'_>]| by_utf16(&pair[0].key, &pair[1].key) == Ordering::Less;
        if members.windows(2).all(in_order) {
            return Ok(());
        }
        members.sort_by(|a, b| by_utf16(&a.key, &b.key));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].key == pair[1].key) {
            return Err(CanonicalError::DuplicateKey {
                at: pair[1].text_at,
            });
        }
        let content = self.out.split_off(open.content_from);
        for member in members {
            let range = member.from - open.content_from..member.end - open.content_from;
            self.out.push_str(&content[range]);
        }
        Ok(())
    }

    fn number(&mut self, token: &str, at: usize) -> Result<(), CanonicalError> {
        if number::is_plain(token) {
            match token.trim_start_matches('-').parse::<u64>() {
                Ok(0) => self.out.push('0'),
                Ok(..=number::SAFE_INTEGER_MAX) => self.out.push_str(token),
                _ => return Err(CanonicalError::UnsafeInteger { at }),
            }
            return Ok(());
        }
        let value = number::finite(token).ok_or(CanonicalError::NotFinite { at })?;
        number::write_ecmascript(value, &mut self.out);
        Ok(())
    }
}

/// By UTF-16 code units, which puts characters beyond the basic plane before U+E000.
fn by_utf16(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// Escapes only what must be: quote, backslash and controls.
fn write_string(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|char| matches!(char, '"' | '\\' | '\0'..' ')) {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            control => {
                out.push_str("\\u00");
                out.push(char::from(HEX[usize::from(control >> 4)]));
                out.push(char::from(HEX[usize::from(control & 0x0f)]));
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn check(text: &str, expected: &str) {
        let actual = canonical(text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(actual).unwrap(), expected);
    }

    fn refused(text: &str, expected: CanonicalError) {
        assert_eq!(canonical(text.as_bytes()), Err(expected), "{text}");
    }

    #[test]
    fn the_samples_of_rfc_8785_come_out_as_printed_there() {
        check(
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
               "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        );
        check(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
               "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        );
        check(
            r#"{"1":{"f":{"f":"hi","F":5},"\n":56.0},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}"#,
            r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
        );
        check(
            r#"{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}"#,
            r#"{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}"#,
        );
        check(
            r#"[56,{"d":true,"10":null,"1":[]}]"#,
            r#"[56,{"1":[],"10":null,"d":true}]"#,
        );
        check(
            r#"{"Unnormalized Unicode":"A\u030a"}"#,
            "{\"Unnormalized Unicode\":\"A\u{30a}\"}",
        );
    }

    #[test]
    fn edge_bytes_agree_with_other_implementations() {
        let text = "{\"€\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\",\
            \"1\":\"One\",\"😀\":\"Emoji: Grinning Face\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\
            \"n\":[333333333.33333329,1e30,4.50,2e-3,1e-27,-0.0,1e21,100],\"s\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        let expected = "7b225c72223a2243617272696167652052657475726e222c2231223a224f6e65222c226e223a5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d32372c302c31652b32312c3130305d2c2273223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f222c22c280223a22436f6e74726f6c222c22c3b6223a224c6174696e20536d616c6c204c6574746572204f205769746820446961657265736973222c22e282ac223a224575726f205369676e222c22f09f9880223a22456d6f6a693a204772696e6e696e672046616365222c22efacb3223a22486562726577204c65747465722044616c6574205769746820446167657368227d";
        assert_eq!(
            HEXLOWER.encode(&canonical(text.as_bytes()).unwrap()),
            expected
        );
        check(
            r#"{"10":1,"9":2,"":3,"A":4,"a":5,"_":6}"#,
            r#"{"":3,"10":1,"9":2,"A":4,"_":6,"a":5}"#,
        );
        check(
            r#"{"a":1.0,"b":1e2,"c":1E-7,"d":0.000001,"e":1e20,"f":1e21,"g":-0,"h":5e-324}"#,
            r#"{"a":1,"b":100,"c":1e-7,"d":0.000001,"e":100000000000000000000,"f":1e+21,"g":0,"h":5e-324}"#,
        );
        check(
            "\"\u{2028}\\u2029\u{7f}\\u007f\\u001f\\b\\f\\t\"",
            "\"\u{2028}\u{2029}\u{7f}\u{7f}\\u001f\\b\\f\\t\"",
        );
    }

    #[test]
    fn what_readers_disagree_about_is_refused_with_its_place() {
        check(
            "[9007199254740991,-9007199254740991]",
            "[9007199254740991,-9007199254740991]",
        );
        refused("9007199254740993", CanonicalError::UnsafeInteger { at: 0 });
        refused(
            "[ 9007199254740992]",
            CanonicalError::UnsafeInteger { at: 2 },
        );
        refused("-9007199254740992", CanonicalError::UnsafeInteger { at: 0 });
        refused(
            "100000000000000000000000",
            CanonicalError::UnsafeInteger { at: 0 },
        );
        refused("[1e400]", CanonicalError::NotFinite { at: 1 });
        refused("-1e400", CanonicalError::NotFinite { at: 0 });
        refused(r#"{"a":1,"a":1}"#, CanonicalError::DuplicateKey { at: 7 });
        refused(
            r#"{"b":{"z":1,"a":2,"\u007a":3}}"#,
            CanonicalError::DuplicateKey { at: 18 },
        );
        refused(r#"["\ud800"]"#, Defect::LoneSurrogate { at: 1 }.into());
        refused(r#"{"\udc00":1}"#, Defect::LoneSurrogate { at: 1 }.into());
        refused("[1", Defect::Truncated.into());
        refused(&"[".repeat(129), Defect::TooDeep { max: DEPTH_MAX }.into());
    }

    #[test]
    fn the_same_key_in_different_objects_is_no_duplicate() {
        check(r#"[{"a":{"a":1}},{"a":2}]"#, r#"[{"a":{"a":1}},{"a":2}]"#);
    }

    #[test]
    fn values_and_texts_have_the_same_canonical_bytes() {
        let text = r#"{"b":[1.0,1e20,1e300,-0.0,0.1],"a":{"é":"\u0001","😀":null,"﬩":7}}"#;
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(canonical_value(&value), canonical(text.as_bytes()));
        let big = serde_json::json!({ "n": 9_007_199_254_740_993_u64 });
        assert!(matches!(
            canonical_value(&big),
            Err(CanonicalError::UnsafeInteger { .. })
        ));
    }
}
