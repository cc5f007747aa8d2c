//! Callbacks of a rail: verification of the `Stripe-Signature` header.
//!
//! Invariant: a message is accepted only if one of the secrets signed its exact bytes recently. Its content is a hint and not
//! trusted: the receiver asks the rail itself.

use std::fmt;

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::plant::{self, Plant};
use data_encoding::HEXLOWER_PERMISSIVE;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use sha2::Sha256;

use crate::problem::Problem;

/// The maximal age of a message, and how far its time may be ahead of the local clock.
pub const TOLERANCE_S: i64 = 300;

const SIGNATURE_BYTES: usize = 32;
/// A rail sends two signatures while it rotates its secret; more than this many are ignored.
const SIGNATURES_MAX: usize = 8;

/// The secrets shared with a rail; two during a rotation.
#[derive(Clone)]
pub struct StripeSecrets(Vec<String>);

impl StripeSecrets {
    /// Empty secrets are dropped, because anyone could sign with them.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        Self(
            secrets
                .into_iter()
                .filter(|secret| !secret.is_empty())
                .collect(),
        )
    }

    /// Checks the `Stripe-Signature` header of a message against the exact body.
    pub fn check(&self, header: &str, body: &[u8], now: Micros) -> Result<(), Problem> {
        let refused = |reason| Problem::CallbackRefused { reason };
        let claim = SignatureHeader::read(header).ok_or_else(|| refused("is malformed"))?;
        let parts = [claim.time.as_bytes(), b".", body];
        let macs = self.0.iter().map(|secret| mac(secret.as_bytes(), &parts));
        check(macs, claim.signatures, claim.at_s, now)
    }
}

/// Whether a message is authentic and recent. Each secret's MAC is computed over the message once, however many signatures
/// the header lists, and every pair is compared, so that timing reveals nothing.
pub(crate) fn check(
    macs: impl Iterator<Item = Hmac<Sha256>>,
    signatures: impl IntoIterator<Item = Vec<u8>>,
    at_s: i64,
    now: Micros,
) -> Result<(), Problem> {
    let refused = |reason| Problem::CallbackRefused { reason };
    let whole = |signature: &Vec<u8>| signature.len() == SIGNATURE_BYTES;
    let signatures = signatures.into_iter().filter(whole);
    let signatures: Vec<_> = signatures.take(SIGNATURES_MAX).collect();
    let mut genuine = false;
    for mac in macs {
        for signature in &signatures {
            genuine |= mac.clone().verify_slice(signature).is_ok();
        }
    }
    if !genuine && !plant::on(Plant::UnsignedCallback) {
        return Err(refused("does not match any configured secret"));
    }
    let apart = at_s.saturating_sub(now.0.div_euclid(SECOND_US));
    if apart.unsigned_abs() > TOLERANCE_S.unsigned_abs() {
        return Err(refused("is too old or too far in the future"));
    }
    Ok(())
}

/// The MAC over the concatenated parts of a message.
pub(crate) fn mac(secret: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(secret);
    let mut mac = mac.expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

impl fmt::Debug for StripeSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StripeSecrets({})", self.0.len())
    }
}

/// `t=<unix seconds>,v1=<hex>`, with several `v1` during a rotation; other schemes are ignored.
struct SignatureHeader<'a> {
    /// As written, because the text is signed.
    time: &'a str,
    at_s: i64,
    signatures: Vec<Vec<u8>>,
}

impl<'a> SignatureHeader<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut times = Vec::new();
        let mut signatures = Vec::new();
        for part in text.split(',') {
            match part.trim().split_once('=')? {
                ("t", time) => times.push(time),
                ("v1", hex) => signatures.extend(HEXLOWER_PERMISSIVE.decode(hex.as_bytes())),
                _ => {}
            }
        }
        // Two times are ambiguous.
        let [time] = times[..] else {
            return None;
        };
        Some(Self {
            time,
            at_s: time.parse().ok()?,
            signatures,
        })
    }
}

/// The subject of a message. Its content is not trusted; it only says which payment to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeEvent {
    /// The same for every delivery of one event.
    pub id: String,
    pub kind: String,
    /// The payment to look up; none if the event is not relevant.
    pub payment_id: Option<String>,
}

impl StripeEvent {
    /// Parses a verified message.
    pub fn read(body: &[u8]) -> Result<Self, Problem> {
        let body: EventBody = serde_json::from_slice(body)
            .map_err(|_| Problem::field("id", "must be an event with an id and a type"))?;
        let object = body.data.object;
        let payment_id = match body.kind.split_once('.') {
            Some(("payment_intent", _)) => object.id,
            Some(("charge" | "refund", _)) => object.payment_intent,
            _ => None,
        };
        Ok(Self {
            id: body.id,
            kind: body.kind,
            payment_id,
        })
    }
}

#[derive(Deserialize)]
struct EventBody {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: EventData,
}

#[derive(Default, Deserialize)]
struct EventData {
    #[serde(default)]
    object: EventObject,
}

#[derive(Default, Deserialize)]
struct EventObject {
    id: Option<String>,
    payment_intent: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        br#"{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_123"}}}"#;
    const V1: &str = "1e63689617fbe74932e9f1c4dc41294cf0c9eb099460688537082a39ad7bd3c5";
    const T: i64 = 1_779_710_405;

    fn check_at(header: &str, body: &[u8], secrets: &[&str], now_s: i64) -> bool {
        let secrets = StripeSecrets::new(secrets.iter().map(|secret| (*secret).to_owned()));
        match secrets.check(header, body, Micros(now_s * SECOND_US)) {
            Ok(()) => true,
            Err(problem) => {
                assert!(
                    matches!(problem, Problem::CallbackRefused { .. }),
                    "{problem:?}"
                );
                false
            }
        }
    }

    fn check(header: &str, secrets: &[&str]) -> bool {
        check_at(header, BODY, secrets, T)
    }

    #[test]
    fn at_079_v9_a_genuine_callback_is_accepted() {
        assert!(check(&format!("t={T},v1={V1}"), &["whsec_test"]));
        assert!(check(
            &format!("t={T},v0=aa,v1={V1},v1=00"),
            &["whsec_test"]
        ));
        assert!(check(&format!("v1=zz, v1={V1}, t={T}"), &["whsec_test"]));
    }

    #[test]
    fn either_secret_is_accepted_during_a_change() {
        let header = format!("t={T},v1={V1}");
        assert!(check(&header, &["whsec_new", "whsec_test"]));
        assert!(check(&header, &["whsec_test", "whsec_new"]));
        assert!(!check(&header, &["whsec_new", "whsec_other"]));
        assert!(!check(&header, &[]));
    }

    #[test]
    fn a_secret_that_is_empty_is_no_secret() {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"").unwrap();
        mac.update(format!("{T}.").as_bytes());
        mac.update(BODY);
        let forged = HEXLOWER_PERMISSIVE.encode(&mac.finalize().into_bytes());
        assert!(!check(&format!("t={T},v1={forged}"), &[""]));
    }

    #[test]
    fn a_forged_or_old_callback_is_refused() {
        let header = format!("t={T},v1={V1}");
        let secret = &["whsec_test"];
        assert!(check_at(&header, BODY, secret, T + TOLERANCE_S));
        assert!(!check_at(&header, BODY, secret, T + TOLERANCE_S + 1));
        assert!(check_at(&header, BODY, secret, T - TOLERANCE_S));
        assert!(!check_at(&header, BODY, secret, T - TOLERANCE_S - 1));
        assert!(!check_at(&header, &BODY[1..], secret, T));
        // The time is signed too.
        assert!(!check(&format!("t={},v1={V1}", T + 1), secret));
        assert!(!check(&format!("t=0{T},v1={V1}"), secret));
        for header in [
            "",
            "t",
            &format!("t={T}"),
            &format!("v1={V1}"),
            &format!("t=,v1={V1}"),
            &format!("t={T},v0={V1}"),
            &format!("t={T},t={T},v1={V1}"),
            &format!("t={T},v1={}", &V1[2..]),
            &format!("t={T},v1={V1}00"),
            &format!("t={}9,v1={V1}", i64::MAX),
        ] {
            assert!(!check(header, secret), "{header}");
        }
    }

    #[test]
    fn no_more_than_a_few_signatures_of_the_right_length_are_looked_at() {
        let secret = &["whsec_test"];
        let wrong = format!("v1={},", "00".repeat(SIGNATURE_BYTES));
        let behind = |ignored: &str, n: usize| format!("t={T},{}v1={V1}", ignored.repeat(n));
        assert!(check(&behind(&wrong, SIGNATURES_MAX - 1), secret));
        assert!(!check(&behind(&wrong, SIGNATURES_MAX), secret));
        // Values that cannot be signatures are not counted.
        assert!(check(&behind("v1=00,", 100), secret));
    }

    #[test]
    fn an_event_names_the_payment_to_ask_about() {
        let payment_id = |body: &str| StripeEvent::read(body.as_bytes()).unwrap().payment_id;
        let event = StripeEvent::read(BODY).unwrap();
        assert_eq!(
            (event.id.as_str(), event.kind.as_str()),
            ("evt_1", "payment_intent.succeeded")
        );
        assert_eq!(event.payment_id.as_deref(), Some("pi_123"));
        for kind in ["charge.refunded", "refund.updated"] {
            let body = format!(
                r#"{{"id":"e","type":"{kind}","data":{{"object":{{"id":"x_1","payment_intent":"pi_9"}}}}}}"#
            );
            assert_eq!(payment_id(&body).as_deref(), Some("pi_9"));
        }
        assert_eq!(
            payment_id(r#"{"id":"e","type":"customer.created","data":{"object":{"id":"cus_1"}}}"#),
            None
        );
        assert_eq!(
            payment_id(r#"{"id":"e","type":"payment_intent.succeeded"}"#),
            None
        );
        for body in ["", "[]", "{}", r#"{"id":1,"type":"x"}"#] {
            let problem = StripeEvent::read(body.as_bytes()).unwrap_err();
            assert!(
                matches!(problem, Problem::InvalidRequest { .. }),
                "{body}: {problem:?}"
            );
        }
    }
}
