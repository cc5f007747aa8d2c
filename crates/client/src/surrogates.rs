//! JSON texts with lone surrogates.
//!
//! JSON allows `\ud800` without its second half, and agents of Beam may send it, but it is no Unicode text. It is read as the
//! replacement character.

/// The text with each lone surrogate replaced, or `None` if there is none.
pub(crate) fn replaced(json: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(json.len());
    let (mut at, mut is_changed) = (0, false);
    while at < json.len() {
        if json[at] != b'\\' {
            out.push(json[at]);
            at += 1;
            continue;
        }
        match (unit(json, at), unit(json, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => {
                out.extend_from_slice(&json[at..at + 12]);
                at += 12;
            }
            (Some(0xd800..=0xdfff), _) => {
                out.extend_from_slice(br"\ufffd");
                at += 6;
                is_changed = true;
            }
            _ => {
                // An escape has at least two characters, and the second one may be a backslash.
                let end = json.len().min(at + 2);
                out.extend_from_slice(&json[at..end]);
                at = end;
            }
        }
    }
    is_changed.then_some(out)
}

/// The code unit of the escape `\uXXXX` that begins there.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(br"\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Option<&str>) {
        let replaced = replaced(json.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(replaced.as_deref(), expected, "{json}");
        if let Some(text) = replaced {
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }

    #[test]
    fn only_lone_surrogates_are_replaced() {
        check(r#"{"a":"\ud83d\ude80"}"#, None);
        check(r#"{"a":"\\ud800 \n"}"#, None);
        check(r#"{"a":"\ud800"}"#, Some(r#"{"a":"\ufffd"}"#));
        check(r#"["\uDC00x"]"#, Some(r#"["\ufffdx"]"#));
        check(
            r#"["\ud800\ud83d\ude80"]"#,
            Some(r#"["\ufffd\ud83d\ude80"]"#),
        );
        check(r#"["\\\ud800"]"#, Some(r#"["\\\ufffd"]"#));
        check(r#"["\u00"#, None);
    }
}
