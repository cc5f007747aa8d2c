//! How long a text is, however its writer chose to escape.

/// The length of compact JSON in UTF-8 with no escape that JSON does not require.
///
/// A writer that spells every non-ASCII letter as `\uXXXX` must not be allowed less than one that does not.
/// `compact` must be well-formed and without white space outside strings.
pub fn utf8_len(compact: &str) -> usize {
    let bytes = compact.as_bytes();
    let (mut length, mut at) = (0, 0);
    while at < bytes.len() {
        let (read, counted) = match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => unicode_escape(&bytes[at..]),
            (b'\\', Some(b'/')) => (2, 1),
            (b'\\', Some(_)) => (2, 2),
            _ => (1, 1),
        };
        at += read;
        length += counted;
    }
    length
}

/// Bytes read and bytes counted for the escape at the start of `text`.
fn unicode_escape(text: &[u8]) -> (usize, usize) {
    match hex4(text) {
        Some(high @ 0xd800..=0xdbff) => match text.get(6..).and_then(hex4) {
            Some(0xdc00..=0xdfff) if high < 0xdc00 => (12, 4),
            _ => (6, 6),
        },
        // A lone surrogate has no other spelling.
        Some(0xdc00..=0xdfff) => (6, 6),
        Some(code) if code < 0x20 => (6, 6),
        Some(0x22 | 0x5c) => (6, 2),
        Some(code) => (6, char::from_u32(code).map_or(6, char::len_utf8)),
        None => (1, 1),
    }
}

fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_034_length_does_not_depend_on_how_letters_are_spelt() {
        for (spelt, length) in [
            (r#""abc""#, 5),
            (r#""\u00e9""#, 4),
            (r#""é""#, 4),
            (r#""\u20ac""#, 5),
            (r#""\ud83d\ude00""#, 6),
            (r#""\ud83d""#, 8),
            (r#""\n\"\\""#, 8),
            (r#""\/""#, 3),
            (r#""\u0041""#, 3),
            (r#""\u0022""#, 4),
            (r#""\u0000""#, 8),
            (r#"{"a":[1,2.5]}"#, 13),
        ] {
            assert_eq!(utf8_len(spelt), length, "{spelt}");
        }
    }
}
