//! Base58 in the alphabet of Bitcoin, for texts as short as keys.

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The work grows with the square of the length.
const TEXT_CHARS_MAX: usize = 64;

pub(super) fn encode(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let digits = convert(&bytes[zeros..], 256, 58);
    let ones = std::iter::repeat_n(0, zeros);
    ones.chain(digits)
        .map(|digit| char::from(ALPHABET[usize::from(digit)]))
        .collect()
}

/// `None` if there is a character outside the alphabet, or more than [`TEXT_CHARS_MAX`] of them.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if text.len() > TEXT_CHARS_MAX {
        return None;
    }
    let digit = |byte| {
        let at = ALPHABET.iter().position(|&known| known == byte)?;
        u8::try_from(at).ok()
    };
    let digits: Vec<u8> = text.bytes().map(digit).collect::<Option<_>>()?;
    let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
    let mut bytes = vec![0; zeros];
    bytes.extend(convert(&digits[zeros..], 58, 256));
    Some(bytes)
}

/// The same number in another base, the most significant digit first, without leading zeros.
fn convert(digits: &[u8], from: u32, to: u32) -> Vec<u8> {
    let mut converted: Vec<u8> = Vec::new();
    for &digit in digits {
        let mut carry = u32::from(digit);
        for place in &mut converted {
            carry += u32::from(*place) * from;
            *place = low(carry % to);
            carry /= to;
        }
        while carry > 0 {
            converted.push(low(carry % to));
            carry /= to;
        }
    }
    converted.reverse();
    converted
}

fn low(digit: u32) -> u8 {
    u8::try_from(digit).expect("a remainder of at most 256")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_texts_come_out() {
        for (bytes, text) in [
            (&b""[..], ""),
            (&[0], "1"),
            (&[0, 0, 1], "112"),
            (b"Hello World!", "2NEpo7TZRRrLZSi2U"),
            (&[255; 4], "7YXq9G"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        for text in ["0", "O", "I", "l", "a b", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode(&"1".repeat(65)), None);
    }

    proptest! {
        #[test]
        fn encoded_bytes_decode_to_themselves(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
