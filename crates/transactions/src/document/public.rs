//! Public keys as ATP writes them: `ed25519:` and base64, with an id of 16 characters.
//!
//! The kernel implements the key and its strict verification; this module adds ATP's text form and id.

use std::fmt;

use consign_kernel::receipt::PublicKey;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD};
use sha2::{Digest as _, Sha256};

use super::ALGORITHM;

const KEY_ID_CHARS: usize = 16;

/// A verification key. Parsing it does not make it trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct AtpPublicKey {
    key: PublicKey,
    id: String,
}

impl AtpPublicKey {
    /// Parses a key as documents write it, with the name of its algorithm.
    pub fn parse(text: &str) -> Option<Self> {
        let (algorithm, key) = text.split_once(':')?;
        (algorithm == ALGORITHM).then(|| Self::parse_bare(key))?
    }

    /// Parses a key without the name of its algorithm.
    pub(super) fn parse_bare(base64: &str) -> Option<Self> {
        let bytes = decode_base64(base64)?.try_into().ok()?;
        PublicKey::from_bytes(&bytes).ok().map(Self::from)
    }

    /// The first 16 characters of the base64 of the key's SHA-256.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Strict: malleable signatures and small-order points fail.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.key.verify_bytes(message, signature)
    }

    /// The coordinate of a JWK.
    pub fn jwk_x(&self) -> String {
        BASE64URL_NOPAD.encode(&self.key.to_bytes())
    }
}

impl From<PublicKey> for AtpPublicKey {
    fn from(key: PublicKey) -> Self {
        let mut id = BASE64.encode(&Sha256::digest(key.to_bytes()));
        id.truncate(KEY_ID_CHARS);
        Self { key, id }
    }
}

/// As documents write it.
impl fmt::Display for AtpPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}:{}", BASE64.encode(&self.key.to_bytes()))
    }
}

impl fmt::Debug for AtpPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtpPublicKey").field(&self.id).finish()
    }
}

/// Accepts both alphabets, with or without padding. Padding must be correct, and no stray bits may remain.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    let padding = text.len() - bare.len();
    if padding > 0 && (padding > 2 || !text.len().is_multiple_of(4)) {
        return None;
    }
    let standard: Vec<u8> = bare.bytes().map(standard_alphabet).collect();
    BASE64_NOPAD.decode(&standard).ok()
}

fn standard_alphabet(byte: u8) -> u8 {
    match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AGENT: &str = "oJql9HpnWYAv+VX43C0qFKXJnSO+l/hkEn/5ODRVpPA=";

    #[test]
    fn a_key_is_written_with_its_algorithm() {
        let text = format!("ed25519:{AGENT}");
        let key = AtpPublicKey::parse(&text).unwrap();
        assert_eq!(key.to_string(), text);
        assert_eq!(key.id(), "EyW4UMKHGRbq4gPw");
        assert_eq!(key.jwk_x(), "oJql9HpnWYAv-VX43C0qFKXJnSO-l_hkEn_5ODRVpPA");
        assert_eq!(
            AtpPublicKey::parse(&format!("ed25519:{}", key.jwk_x())),
            Some(key)
        );
        for text in [
            AGENT,
            "rsa:oJql",
            "ed25519:",
            "ed25519:oJql",
            "PublicKey:x",
            "",
        ] {
            assert_eq!(AtpPublicKey::parse(text), None, "{text}");
        }
        // A point for which anyone can forge signatures.
        let weak = format!("ed25519:{}", BASE64.encode(&[0; 32]));
        assert_eq!(AtpPublicKey::parse(&weak), None);
    }

    #[test]
    fn base64_that_is_not_exact_is_refused() {
        for text in ["QQ", "QQ=="] {
            assert_eq!(decode_base64(text), Some(b"A".to_vec()));
        }
        for text in [
            "QQ=", "QQ===", "QR==", "Q", "Q===", "QQ ==", "Q=Q=", "QUFB====", "QUFBQQ=",
        ] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn all_spellings_of_base64_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            let padded = BASE64.encode(&bytes);
            let url = padded.replace('+', "-").replace('/', "_");
            for text in [padded.as_str(), padded.trim_end_matches('='), url.as_str(), url.trim_end_matches('=')] {
                prop_assert_eq!(decode_base64(text), Some(bytes.clone()));
            }
        }
    }
}
