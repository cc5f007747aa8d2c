//! Strict percent-encoding and request paths.
//!
//! Invariant: only the unreserved characters of RFC 3986 stay unencoded, hexadecimal digits are upper case and a
//! space is `%20`, so a request is sent in the form that is signed.

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Encodes one path segment or query word.
pub fn encode(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// Decodes `%XX`. A percent sign without two digits stays as it is, and invalid UTF-8 becomes replacement
/// characters, because the server verifies that form.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|pair| Some((nibble(pair[0])? << 4) | nibble(pair[1])?));
        match (pair, bytes[at]) {
            (Some(byte), _) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (None, b'+') if plus_is_space => decoded.push(b' '),
            (None, byte) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8(decoded)
        .unwrap_or_else(|mixed| String::from_utf8_lossy(mixed.as_bytes()).into_owned())
}

/// `path` followed by the `pairs` that have a value.
pub(crate) fn path_with_query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut whole = path.to_owned();
    let mut separator = '?';
    for (name, value) in pairs {
        let Some(value) = value else { continue };
        whole.push(separator);
        whole.push_str(&encode(name.as_bytes()));
        whole.push('=');
        whole.push_str(&encode(value.as_bytes()));
        separator = '&';
    }
    whole
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay_bare() {
        assert_eq!(encode("aZ09_.-~".as_bytes()), "aZ09_.-~");
        assert_eq!(
            encode("a b/c&d=é+%".as_bytes()),
            "a%20b%2Fc%26d%3D%C3%A9%2B%25"
        );
    }

    #[test]
    fn decoding_keeps_what_is_no_pair() {
        assert_eq!(decode("a%2fb%2Fc", false), "a/b/c");
        assert_eq!(decode("a+b%", true), "a b%");
        assert_eq!(decode("a+b%4", false), "a+b%4");
        assert_eq!(decode("%zz%é", false), "%zz%é");
    }

    #[test]
    fn what_is_not_text_is_decoded_the_way_the_server_does() {
        assert_eq!(decode("a%FFb%C3%A9%C3", false), "a\u{fffd}bé\u{fffd}");
    }

    #[test]
    fn absent_parameters_leave_no_trace() {
        assert_eq!(path_with_query("/claim", &[("goal", None)]), "/claim");
        assert_eq!(
            path_with_query(
                "/claim",
                &[("goal", Some("a b")), ("wait", None), ("max", Some("3"))]
            ),
            "/claim?goal=a%20b&max=3"
        );
    }
}
