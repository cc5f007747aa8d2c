//! The `signature` member of a document, as claimed: a string, or an object.
//!
//! The member itself is not signed, so it is not trusted: its key id and key serve to find the trusted key and to detect a
//! contradiction; its `signed_at` proves nothing and is not read.

use consign_kernel::json::Raw;

use super::public::decode_base64;
use super::{ALGORITHM, AtpPublicKey};

/// The value of the signature member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    Missing,
    /// Made by an unsupported algorithm.
    Unsupported,
    Claimed(SignatureClaim),
}

/// A signature of the supported algorithm, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureClaim {
    /// None if it is not 64 bytes.
    value: Option<[u8; 64]>,
    pub(crate) key_id: Option<String>,
    /// The embedded key. It never makes a document trusted.
    pub(crate) embedded: Option<Embedded>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Embedded {
    Key(Box<AtpPublicKey>),
    /// A value that is not a key.
    NoKey,
}

impl Signature {
    pub(super) fn read(member: Option<Raw<'_>>) -> Self {
        let Some(member) = member.filter(|member| !member.is_null()) else {
            return Self::Missing;
        };
        match member.object() {
            Ok(object) => {
                let text = |name: &str| object.get(name).and_then(|value| value.as_str());
                if text("algorithm").as_deref() != Some(ALGORITHM) {
                    return Self::Unsupported;
                }
                let Some(value) = object.get("value").filter(|value| !value.is_null()) else {
                    return Self::Missing;
                };
                let embedded = object.get("public_key").filter(|key| !key.is_null());
                Self::Claimed(SignatureClaim {
                    value: value.as_str().as_deref().and_then(decode),
                    key_id: text("key_id").map(Into::into),
                    embedded: embedded.map(Embedded::read),
                })
            }
            Err(_) => Self::of_text(member.as_str().as_deref()),
        }
    }

    /// A string is base64, optionally prefixed with the name of its algorithm; any other type is not a signature.
    fn of_text(text: Option<&str>) -> Self {
        let value = match text.map(|text| text.split_once(':').ok_or(text)) {
            Some(Ok((ALGORITHM, base64)) | Err(base64)) => decode(base64),
            Some(Ok(_)) => return Self::Unsupported,
            None => None,
        };
        Self::Claimed(SignatureClaim {
            value,
            key_id: None,
            embedded: None,
        })
    }
}

impl SignatureClaim {
    /// Whether the claim names this key or no key.
    pub(super) fn may_be_of(&self, key: &AtpPublicKey) -> bool {
        let embedded = self.embedded.as_ref();
        self.key_id.as_deref().is_none_or(|id| id == key.id())
            && embedded
                .is_none_or(|embedded| matches!(embedded, Embedded::Key(given) if **given == *key))
    }

    pub(crate) fn verifies(&self, key: &AtpPublicKey, message: &[u8]) -> bool {
        self.value.is_some_and(|value| key.verify(message, &value))
    }

    /// Whether both are the same signature.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.value.is_some() && self.value == other.value
    }
}

impl Embedded {
    fn read(member: Raw<'_>) -> Self {
        let text = member.as_str();
        let key = text
            .as_deref()
            .and_then(|text| AtpPublicKey::parse(text).or_else(|| AtpPublicKey::parse_bare(text)));
        key.map_or(Self::NoKey, |key| Self::Key(Box::new(key)))
    }
}

fn decode(base64: &str) -> Option<[u8; 64]> {
    decode_base64(base64)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;

    use super::*;

    fn read(text: &str) -> Signature {
        Signature::read(Some(Raw::parse(text.as_bytes(), 9).unwrap()))
    }

    fn claim(text: &str) -> SignatureClaim {
        let Signature::Claimed(claim) = read(text) else {
            panic!("{text} claims nothing");
        };
        claim
    }

    #[test]
    fn both_forms_are_read() {
        let value = BASE64.encode(&[0xfb; 64]);
        let bare = claim(&format!("\"{value}\""));
        assert_eq!(bare.value, Some([0xfb; 64]));
        assert_eq!(claim(&format!("\"ed25519:{value}\"")), bare);
        let object = claim(&format!(
            r#"{{"algorithm":"ed25519","value":"{value}","key_id":"k","public_key":"no key","signed_at":"x"}}"#
        ));
        assert!(object.equals(&bare));
        assert_eq!(object.key_id.as_deref(), Some("k"));
        assert_eq!(object.embedded, Some(Embedded::NoKey));
    }

    #[test]
    fn an_embedded_key_is_read_with_and_without_its_algorithm() {
        let key = "oJql9HpnWYAv+VX43C0qFKXJnSO+l/hkEn/5ODRVpPA=";
        for text in [key.to_owned(), format!("ed25519:{key}")] {
            let claim = claim(&format!(
                r#"{{"algorithm":"ed25519","value":"","public_key":"{text}"}}"#
            ));
            let Some(Embedded::Key(key)) = claim.embedded else {
                panic!("no key in {text}");
            };
            assert_eq!(key.id(), "EyW4UMKHGRbq4gPw");
        }
    }

    #[test]
    fn what_is_missing_foreign_or_malformed_is_told_apart() {
        assert_eq!(Signature::read(None), Signature::Missing);
        assert_eq!(read("null"), Signature::Missing);
        assert_eq!(read(r#"{"algorithm":"ed25519"}"#), Signature::Missing);
        for text in [
            r#""rsa:AAAA""#,
            "{}",
            r#"{"algorithm":"Ed25519","value":"x"}"#,
            r#"{"value":"x"}"#,
        ] {
            assert_eq!(read(text), Signature::Unsupported, "{text}");
        }
        let short = BASE64.encode(&[1; 63]);
        for text in ["7", "[]", "true", "\"\"", "\"*\"", &format!("\"{short}\"")] {
            assert_eq!(claim(text).value, None, "{text}");
        }
        assert!(!claim("7").equals(&claim("7")));
    }
}
