//! The form payloads are stored in: white space outside strings removed, every token as sent.
//!
//! Invariant: the result is well-formed, means what the text meant, and is never longer than it.
//! It does not normalise: `1.0`, `"\u0041"` and duplicate members survive untouched.

use super::Defect;
use super::scan::{JsonToken, Scanner};

/// Checks that `text` is exactly one JSON value and returns it without white space.
pub fn compact(text: &[u8], depth_max: usize) -> Result<String, Defect> {
    let mut scanner = Scanner::new(text, depth_max)?;
    let mut compact = String::with_capacity(text.len());
    write(&mut scanner, &mut compact)?;
    Ok(compact)
}

pub(super) fn write(scanner: &mut Scanner<'_>, compact: &mut String) -> Result<(), Defect> {
    let mut comma_due = false;
    while let Some(token) = scanner.next()? {
        let closes = matches!(token, JsonToken::ObjectEnd | JsonToken::ArrayEnd);
        if comma_due && !closes {
            compact.push(',');
        }
        comma_due = true;
        match token {
            JsonToken::ObjectStart => {
                compact.push('{');
                comma_due = false;
            }
            JsonToken::ArrayStart => {
                compact.push('[');
                comma_due = false;
            }
            JsonToken::Key(key) => {
                compact.push_str(key.raw());
                compact.push(':');
                comma_due = false;
            }
            JsonToken::ObjectEnd => compact.push('}'),
            JsonToken::ArrayEnd => compact.push(']'),
            JsonToken::String(quoted) => compact.push_str(quoted.raw()),
            JsonToken::Number(number) => compact.push_str(number),
            JsonToken::True => compact.push_str("true"),
            JsonToken::False => compact.push_str("false"),
            JsonToken::Null => compact.push_str("null"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::DEPTH_MAX;

    fn check(text: &str, expected: Result<&str, Defect>) {
        let actual = compact(text.as_bytes(), DEPTH_MAX);
        assert_eq!(
            actual.as_deref().map_err(|defect| *defect),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn white_space_goes_and_every_token_stays_as_sent() {
        check(
            " { \"a\" : [ 1.0 , -0e+05 ] }\r\n\t",
            Ok(r#"{"a":[1.0,-0e+05]}"#),
        );
        check(r#"{"a": 1, "a": 2}"#, Ok(r#"{"a":1,"a":2}"#));
        check(r#"" a  \u0041\/ ""#, Ok(r#"" a  \u0041\/ ""#));
        check(
            "[ [ ] , { } , true,false ,null ]",
            Ok("[[],{},true,false,null]"),
        );
        check(
            "123456789012345678901234567890",
            Ok("123456789012345678901234567890"),
        );
        check(r#""\ud800""#, Ok(r#""\ud800""#));
        check("\"\u{7f}\u{2028}😀\"", Ok("\"\u{7f}\u{2028}😀\""));
    }

    #[test]
    fn what_is_not_one_json_value_is_refused_with_its_place() {
        let syntax = |at| Err(Defect::Syntax { at });
        let trailing = |at| Err(Defect::Trailing { at });
        check("", Err(Defect::Empty));
        check(" \n", Err(Defect::Empty));
        check("\u{feff}1", Err(Defect::ByteOrderMark));
        check("1 2", trailing(2));
        check("{}]", trailing(2));
        check("nulll", trailing(4));
        check("01", syntax(1));
        check("-", Err(Defect::Truncated));
        check("1.", Err(Defect::Truncated));
        check("1.e3", syntax(2));
        check("+1", syntax(0));
        check(".5", syntax(0));
        check("NaN", syntax(0));
        check("'a'", syntax(0));
        check("[1,]", syntax(3));
        check("[,1]", syntax(1));
        check("[1 2]", syntax(3));
        check("[1}", syntax(2));
        check(r#"{"a":1,}"#, syntax(7));
        check(r#"{"a" 1}"#, syntax(5));
        check("{a:1}", syntax(1));
        check(r#"{"a":"#, Err(Defect::Truncated));
        check("[", Err(Defect::Truncated));
        check(r#""abc"#, Err(Defect::Truncated));
        check("\"a\nb\"", syntax(2));
        check(r#""\x""#, syntax(2));
        check(r#""\u12g4""#, syntax(5));
        check("[1/* no */]", syntax(2));
        check("\u{a0}1", syntax(0));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_place() {
        assert_eq!(compact(b"\"ab\xff\"", 8), Err(Defect::NotUtf8 { at: 3 }));
        assert_eq!(
            compact(b"\"\xed\xa0\x80\"", 8),
            Err(Defect::NotUtf8 { at: 1 })
        );
    }

    #[test]
    fn depth_is_bounded_and_a_million_levels_are_harmless() {
        assert_eq!(compact(b"[[1]]", 2).as_deref(), Ok("[[1]]"));
        assert_eq!(compact(b"[[1]]", 1), Err(Defect::TooDeep { max: 1 }));
        assert_eq!(compact(b"1", 0).as_deref(), Ok("1"));
        let deep = "[".repeat(1_000_000);
        assert_eq!(
            compact(deep.as_bytes(), 128),
            Err(Defect::TooDeep { max: 128 })
        );
        let mixed = "[{\"a\":".repeat(200) + "0" + &"}]".repeat(200);
        assert_eq!(
            compact(mixed.as_bytes(), 400).as_deref(),
            Ok(mixed.as_str())
        );
        let crossed = "[{\"a\":".repeat(200) + "0" + &"}]".repeat(150) + &"]}".repeat(50);
        assert!(matches!(
            compact(crossed.as_bytes(), 400),
            Err(Defect::Syntax { .. })
        ));
    }

    #[test]
    fn a_string_ends_at_the_right_byte_wherever_it_lies_in_a_word() {
        for length in 0..40 {
            let plain = "x".repeat(length);
            check(&format!("[\"{plain}\" ]"), Ok(&format!("[\"{plain}\"]")));
            check(
                &format!("\"{plain}\u{1}\""),
                Err(Defect::Syntax { at: length + 1 }),
            );
            check(
                &format!("\"{plain}\\\"é\""),
                Ok(&format!("\"{plain}\\\"é\"")),
            );
        }
    }
}
