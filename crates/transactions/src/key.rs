//! The idempotency key, chosen by the agent, and values derived from it.
//!
//! Invariant: a key is compared byte for byte and never printed; only its hash is published.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use consign_kernel::json::JsonKind;
use consign_kernel::receipt::sha256_hex;

use crate::document::{AtpDocument, hash};
use crate::problem::Problem;

pub const KEY_CHARS_MIN: usize = 16;
pub const KEY_CHARS_MAX: usize = 128;
/// Limit of the compatibility profile, whose clients use short keys.
const COMPAT_CHARS_MAX: usize = 200;

/// Hex digits of the hash in a rail reference.
const REFERENCE_DIGITS: usize = 40;

/// Identifies retries of one request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// From the header `Idempotency-Key`, or from the body's member without a header; if both are present, they must agree.
    pub fn of_request(header: Option<&[u8]>, body: &AtpDocument) -> Result<Self, Problem> {
        Self::new(&found(header, body)?)
    }

    /// For a request that needs no key: a key in the body must equal the header's.
    pub(crate) fn check_named(header: Option<&[u8]>, body: &AtpDocument) -> Result<(), Problem> {
        match found(header, body) {
            Ok(_) | Err(Problem::IdempotencyKeyRequired) => Ok(()),
            Err(problem) => Err(problem),
        }
    }

    /// The same for the compatibility profile, whose keys have 1 to 200 characters.
    pub(crate) fn of_compat_request(
        header: Option<&[u8]>,
        body: &AtpDocument,
    ) -> Result<Self, Problem> {
        let reason = "must have 1 to 200 characters";
        Self::within(&found(header, body)?, 1..=COMPAT_CHARS_MAX, reason)
    }

    /// A key that was validated and stored before.
    pub(crate) fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// 16 to 128 characters, no control characters.
    pub fn new(key: &str) -> Result<Self, Problem> {
        let reason = "must have 16 to 128 characters";
        Self::within(key, KEY_CHARS_MIN..=KEY_CHARS_MAX, reason)
    }

    fn within(
        key: &str,
        chars: RangeInclusive<usize>,
        too_short_or_long: &'static str,
    ) -> Result<Self, Problem> {
        let reason = if !chars.contains(&key.chars().count()) {
            too_short_or_long
        } else if key.chars().any(char::is_control) {
            "must not have control characters"
        } else {
            return Ok(Self(key.to_owned()));
        };
        Err(Problem::IdempotencyKeyInvalid { reason })
    }

    /// For storage. The type has no `Display`, so that a key cannot reach a log by accident.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash that receipts show.
    pub fn hash(&self) -> String {
        hash(self.0.as_bytes())
    }

    /// The reference under which the rail executes the transaction once: stable across crashes, different for every
    /// transaction.
    pub fn rail_reference(&self, intent_id: &str) -> RailReference {
        // Ids have no zero byte, so different pairs cannot collide.
        let digest = sha256_hex(&[intent_id.as_bytes(), &[0], self.0.as_bytes()].concat());
        RailReference(format!("atp_{}", &digest[..REFERENCE_DIGITS]))
    }
}

/// From the header, or from the body's member without a header; if both are present, they must agree.
fn found<'a>(header: Option<&'a [u8]>, body: &'a AtpDocument) -> Result<Cow<'a, str>, Problem> {
    let invalid = |reason| Problem::IdempotencyKeyInvalid { reason };
    let header = header.map(str::from_utf8).transpose();
    let header = header.map_err(|_| invalid("is not UTF-8"))?;
    let member = match body.get("idempotency_key") {
        Some(member) if member.kind() == JsonKind::String => member.as_str(),
        Some(member) if !member.is_null() => return Err(invalid("must be text")),
        _ => None,
    };
    match (header, member) {
        (Some(header), Some(member)) if header != member => {
            Err(invalid("of the header differs from that of the body"))
        }
        (Some(key), _) => Ok(Cow::Borrowed(key)),
        (None, Some(key)) => Ok(key),
        (None, None) => Err(Problem::IdempotencyKeyRequired),
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyKey").field(&self.hash()).finish()
    }
}

/// The reference by which a rail knows a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RailReference(String);

impl RailReference {
    /// A reference that was derived and stored before.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The reference of its refund. After a final refusal, the next attempt uses another reference, because the rail would
    /// repeat its answer to the same one.
    pub fn refund(&self, refused_before: u32) -> String {
        match refused_before {
            0 => format!("{}_refund", self.0),
            refused => format!("{}_refund_{}", self.0, refused + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::ProblemResponse;

    const SIXTEEN: &str = "0123456789abcdef";

    fn of_request(header: Option<&str>, body: &str) -> Result<IdempotencyKey, Problem> {
        let body = AtpDocument::read(body.as_bytes(), 1_000).unwrap();
        IdempotencyKey::of_request(header.map(str::as_bytes), &body)
    }

    fn name(result: Result<IdempotencyKey, Problem>) -> &'static str {
        ProblemResponse(result.unwrap_err()).name()
    }

    #[test]
    fn a_key_has_16_to_128_characters_and_no_controls() {
        for key in [
            SIXTEEN,
            &"x".repeat(128),
            &"é".repeat(128),
            &"😀".repeat(16),
            " leading and trailing ",
        ] {
            assert_eq!(IdempotencyKey::new(key).unwrap().reveal(), key);
        }
        for key in [
            &SIXTEEN[1..],
            &"x".repeat(129),
            "",
            &"é".repeat(15),
            "0123456789abcde\n",
            "0123456789abcde\u{7f}",
            "0123456789abcde\u{85}",
        ] {
            assert_eq!(
                name(IdempotencyKey::new(key)),
                "idempotency_key_invalid",
                "{key:?}"
            );
        }
    }

    #[test]
    fn keys_that_differ_in_case_alone_are_two() {
        let upper = IdempotencyKey::new("0123456789ABCDEF").unwrap();
        let lower = IdempotencyKey::new(SIXTEEN).unwrap();
        assert_ne!(upper, lower);
        assert_ne!(
            upper.rail_reference("int_abc"),
            lower.rail_reference("int_abc")
        );
    }

    #[test]
    fn header_and_body_must_agree() {
        let member = format!(r#"{{"idempotency_key":"{SIXTEEN}"}}"#);
        assert_eq!(of_request(None, &member).unwrap().reveal(), SIXTEEN);
        assert_eq!(
            of_request(Some(SIXTEEN), &member).unwrap().reveal(),
            SIXTEEN
        );
        assert_eq!(of_request(Some(SIXTEEN), "{}").unwrap().reveal(), SIXTEEN);
        assert_eq!(
            of_request(Some(SIXTEEN), r#"{"idempotency_key":null}"#)
                .unwrap()
                .reveal(),
            SIXTEEN
        );
        assert_eq!(
            name(of_request(Some("0123456789abcdeF"), &member)),
            "idempotency_key_invalid"
        );
        assert_eq!(
            name(of_request(Some(SIXTEEN), r#"{"idempotency_key":1}"#)),
            "idempotency_key_invalid"
        );
        assert_eq!(name(of_request(None, "{}")), "idempotency_key_required");
        assert_eq!(
            name(of_request(None, r#"{"idempotency_key":null}"#)),
            "idempotency_key_required"
        );
        let body = AtpDocument::read(b"{}", 10).unwrap();
        assert_eq!(
            name(IdempotencyKey::of_request(
                Some(b"0123456789abcde\xff"),
                &body
            )),
            "idempotency_key_invalid"
        );
    }

    #[test]
    fn a_key_is_not_shown_by_debug_output() {
        let key = IdempotencyKey::new(SIXTEEN).unwrap();
        assert!(!format!("{key:?}").contains(SIXTEEN));
    }

    proptest! {
        #[test]
        fn a_reference_is_short_plain_and_of_both_its_parts(
            id in "[A-Za-z0-9._:-]{1,20}", key in "\\PC{16,40}", other in "\\PC{16,40}",
        ) {
            prop_assume!(key != other);
            let of = |id: &str, key: &str| IdempotencyKey::new(key).unwrap().rail_reference(id);
            let reference = of(&id, &key);
            prop_assert_eq!(reference.as_str().len(), 44);
            prop_assert!(reference.as_str().bytes().skip(4).all(|byte| byte.is_ascii_hexdigit()));
            prop_assert_ne!(&reference, &of(&id, &other));
            prop_assert_ne!(&reference, &of(&format!("{id}x"), &key));
        }
    }
}
