//! A signed ATP document: the bytes as sent, the bytes that the signature covers, and the claimed signature.
//!
//! The signed bytes are the RFC 8785 form of the object without its top-level `signature`.
//! Invariant: a document with more than one reading is refused when it is parsed (repeated members, lone surrogates, integers
//! that are not exact in a double), so that the verifier and the executor read the same.
//! This module verifies a signature with a given key; it does not decide whether the key is trusted.

mod public;
mod sign;
mod signature;

use std::fmt;

use consign_kernel::json::{self, DEPTH_MAX, Object, Raw};
use consign_kernel::receipt::sha256_hex;

use crate::envelope::RequestOperation;
use crate::problem::Problem;

pub use public::AtpPublicKey;
pub use sign::{AgentSigner, SignedText, SiteSigner};
pub(crate) use signature::Embedded;
pub use signature::{Signature, SignatureClaim};

/// The only supported algorithm.
pub const ALGORITHM: &str = "ed25519";

/// Limit on the body of create, authorize and execute.
pub const REQUEST_BYTES_MAX: usize = 32 << 10;
/// Limit on the body of compensate and cancel.
pub const NOTE_BYTES_MAX: usize = 4 << 10;
/// Limit on a document to verify.
pub const VERIFY_BYTES_MAX: usize = 256 << 10;

const SIGNATURE: &str = "signature";
const IDEMPOTENCY_KEY: &str = "idempotency_key";
const ISSUED_AT: &str = "issued_at";

/// A JSON object with exactly one reading.
#[derive(Clone, PartialEq, Eq)]
pub struct AtpDocument {
    sent: Vec<u8>,
    canonical: String,
    signed: String,
    signature: Signature,
}

impl AtpDocument {
    /// Parses a body of at most `max_bytes`.
    pub fn read(body: &[u8], max_bytes: usize) -> Result<Self, Problem> {
        if body.len() > max_bytes {
            return Err(Problem::PayloadTooLarge { max_bytes });
        }
        let canonical = json::canonical(body).map_err(|refusal| unreadable(&refusal))?;
        let canonical = String::from_utf8(canonical).expect("canonical JSON is UTF-8");
        let members =
            Object::parse(canonical.as_bytes(), DEPTH_MAX).map_err(|defect| unreadable(&defect))?;
        let signed = without(&members, &[SIGNATURE]);
        let signature = Signature::read(members.get(SIGNATURE));
        Ok(Self {
            sent: body.to_vec(),
            signed,
            signature,
            canonical,
        })
    }

    /// The document inside a member, such as `{"receipt": {...}}`.
    pub fn inner(&self, member: &str) -> Option<Result<Self, Problem>> {
        // Taken from the bytes as sent: the canonical form of 1e20 is an integer that would be refused.
        let outer = Object::parse(&self.sent, DEPTH_MAX).expect("it was parsed before");
        let inner = outer.get(member)?;
        Some(Self::read(inner.text().as_bytes(), usize::MAX))
    }

    /// The exact bytes as sent.
    pub fn sent(&self) -> &[u8] {
        &self.sent
    }

    /// The bytes that a signature of this document covers.
    pub fn signed_bytes(&self) -> &[u8] {
        self.signed.as_bytes()
    }

    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// All members except the signature, in canonical form.
    pub fn members(&self) -> Object<'_> {
        Object::parse(self.signed.as_bytes(), DEPTH_MAX).expect("canonical JSON of an object")
    }

    /// A member other than the signature.
    pub fn get(&self, member: &str) -> Option<Raw<'_>> {
        self.members().get(member)
    }

    /// The hash by which other documents refer to this one.
    pub fn hash(&self) -> String {
        hash(self.signed_bytes())
    }

    /// Distinguishes requests with the same idempotency key: a hash of all members except the key.
    ///
    /// A request that names its operation stays the same request when it is signed again: an agent that stored only its key
    /// must be able to repeat it after the first signature has become too old.
    pub fn fingerprint(&self) -> String {
        let members = Object::parse(self.canonical.as_bytes(), DEPTH_MAX)
            .expect("canonical JSON of an object");
        let left_out: &[&str] = if names_its_operation(&members) {
            &[IDEMPOTENCY_KEY, ISSUED_AT, SIGNATURE]
        } else {
            &[IDEMPOTENCY_KEY]
        };
        hash(without(&members, left_out).as_bytes())
    }

    /// Whether it has the form of a signed request.
    pub(crate) fn names_its_operation(&self) -> bool {
        names_its_operation(&self.members())
    }

    /// Whether there is a signature, valid or not.
    pub fn is_signed(&self) -> bool {
        self.signature != Signature::Missing
    }

    /// Whether `key` signed this document and the signature claims no other key.
    pub fn is_signed_by(&self, key: &AtpPublicKey) -> bool {
        let Signature::Claimed(claim) = &self.signature else {
            return false;
        };
        claim.may_be_of(key) && claim.verifies(key, self.signed_bytes())
    }
}

/// Prints the kind and not the content: a body may contain an idempotency key, and debug output reaches logs.
impl fmt::Debug for AtpDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtpDocument({} bytes, {})", self.sent.len(), self.hash())
    }
}

/// The text form of hashes.
pub fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(bytes))
}

/// Canonical text of all members except these; removing members keeps the order.
fn without(members: &Object<'_>, left_out: &[&str]) -> String {
    let mut text = String::from("{");
    let kept = |key: &str| left_out.iter().all(|name| *name != key);
    for (key, value) in members.members().iter().filter(|(key, _)| kept(key)) {
        if text.len() > 1 {
            text.push(',');
        }
        // serde and RFC 8785 escape strings alike.
        text.push_str(&serde_json::to_string(key).expect("strings always serialise"));
        text.push(':');
        text.push_str(value.text());
    }
    text.push('}');
    text
}

fn names_its_operation(members: &Object<'_>) -> bool {
    let named = members.get("type").and_then(|named| named.as_str());
    named.is_some_and(|named| RequestOperation::of_document_type(&named).is_some())
}

fn unreadable(cause: &dyn std::error::Error) -> Problem {
    Problem::InvalidRequest {
        field: None,
        reason: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<AtpDocument, Problem> {
        AtpDocument::read(text.as_bytes(), REQUEST_BYTES_MAX)
    }

    #[test]
    fn the_top_level_signature_alone_is_left_out() {
        let document =
            read(r#"{ "z":1.0, "signature":"x", "a":{"signature":"y"} , "signatur\u00e9":2}"#)
                .unwrap();
        assert_eq!(
            document.signed_bytes(),
            r#"{"a":{"signature":"y"},"signaturé":2,"z":1}"#.as_bytes()
        );
        assert_eq!(read(r#"{"signature":null}"#).unwrap().signed_bytes(), b"{}");
        // Any spelling of the member name is the signature.
        assert_eq!(
            read(r#"{"signatur\u0065":"x","b":1}"#)
                .unwrap()
                .signed_bytes(),
            br#"{"b":1}"#
        );
    }

    #[test]
    fn at_006_at_007_what_has_two_readings_is_refused() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"signature":"x","signature":"y"}"#,
            r#"{"signature":{"value":"x","value":"y"}}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"{"a":9007199254740992}"#,
            r#"{"a":[-9007199254740992]}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"\udc00":1}"#,
            r#"{"a":1e999}"#,
            "[]",
            "\"text\"",
            "",
            "{",
            "{} {}",
            "\u{feff}{}",
        ] {
            let problem = read(text).unwrap_err();
            assert!(
                matches!(problem, Problem::InvalidRequest { .. }),
                "{text}: {problem:?}"
            );
        }
        assert!(AtpDocument::read(b"{\"a\":\"\xff\"}", 100).is_err());
        assert!(read(r#"{"a":9007199254740991,"b":-9007199254740991,"c":1e20}"#).is_ok());
        let deep =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&deep(DEPTH_MAX - 1)).is_ok());
        assert!(read(&deep(DEPTH_MAX)).is_err());
    }

    #[test]
    fn a_body_may_be_as_long_as_its_limit() {
        let text = br#"{"a":"b"}"#;
        assert!(AtpDocument::read(text, text.len()).is_ok());
        let max_bytes = text.len() - 1;
        let problem = AtpDocument::read(text, max_bytes).unwrap_err();
        assert_eq!(problem, Problem::PayloadTooLarge { max_bytes });
    }

    #[test]
    fn the_fingerprint_covers_all_but_the_key() {
        let print = |text: &str| read(text).unwrap().fingerprint();
        let first = print(r#"{"intent_id":"i","amount_cents":1500,"idempotency_key":"k"}"#);
        assert_eq!(
            first,
            print(" {\"amount_cents\" : 1500.0, \"intent_id\":\"\\u0069\"} ")
        );
        assert_ne!(first, print(r#"{"intent_id":"i","amount_cents":1501}"#));
        assert_ne!(
            first,
            print(r#"{"intent_id":"i","amount_cents":1500,"signature":"x"}"#)
        );
    }

    #[test]
    fn debug_output_does_not_repeat_a_body() {
        let document = read(r#"{"idempotency_key":"0123456789abcdef"}"#).unwrap();
        assert!(!format!("{document:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn a_document_inside_another_is_read_from_what_was_sent() {
        let outer = read(r#"{"receipt": {"b":1e20, "a":1}, "x":[]}"#).unwrap();
        let inner = outer.inner("receipt").unwrap().unwrap();
        assert_eq!(
            inner.signed_bytes(),
            br#"{"a":1,"b":100000000000000000000}"#
        );
        assert_eq!(inner.sent(), br#"{"b":1e20, "a":1}"#);
        assert!(outer.inner("x").unwrap().is_err());
        assert!(outer.inner("y").is_none());
    }

    proptest! {
        #[test]
        fn leaving_the_signature_out_is_the_same_as_never_sending_it(
            members in proptest::collection::btree_map("\\PC{0,4}|[\\x00-\\x20\"\\\\]{1,3}", "\\PC{0,6}", 0..6),
        ) {
            let mut value = serde_json::to_value(&members).unwrap();
            value.as_object_mut().unwrap().remove(SIGNATURE);
            let unsigned = json::canonical_value(&value).unwrap();
            value[SIGNATURE] = serde_json::json!({"value": "x"});
            let document = read(&value.to_string()).unwrap();
            prop_assert_eq!(document.signed_bytes(), unsigned);
        }
    }
}
