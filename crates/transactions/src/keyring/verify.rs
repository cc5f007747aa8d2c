//! Verification of a document as a receipt, for a verifier that trusts the keys of this site alone.
//!
//! Invariant: a document is valid only if a key of the ring signed it and that key was valid when it was issued. An embedded
//! key can make the signature valid but never the document trusted.
//! There is no maximum age, because receipts are evidence.

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::plant::{self, Plant};
use serde::Serialize;

use super::{KeyStanding, Keyring, SiteKey};
use crate::document::{AtpDocument, AtpPublicKey, Embedded, Signature, SignatureClaim};
use crate::instant;
use crate::receipt::{COMPENSATION_TYPE, SETTLEMENT_TYPE};

/// The result for one document.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the protocol defines these members"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub ok: bool,
    /// Some key, trusted or not, signed exactly this document.
    pub signature_valid: bool,
    /// A key of this site that was valid at the time signed exactly this document.
    pub trusted: bool,
    pub key_id: Option<String>,
    pub key_status: Option<&'static str>,
    #[serde(serialize_with = "instant::maybe::serialize")]
    pub issued_at: Option<Micros>,
    pub age_seconds: Option<i64>,
    pub kind: Option<String>,
    /// Whether the site's own ledger has it; the caller fills it in.
    pub stored: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<InvalidReason>,
}

/// Why a document is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidReason {
    NoSignature,
    UnsupportedAlgorithm,
    /// The named id does not match the embedded key.
    KeyIdMismatch,
    SignatureMismatch,
    UnknownKey,
    KeyRevoked,
    KeyExpired,
    SiteMismatch,
    /// Signed by the site, but not a receipt.
    NotAReceipt,
}

/// The result of the signature check alone.
struct SignatureFinding<'a> {
    key_id: Option<String>,
    site_key: Option<&'a SiteKey>,
    valid: bool,
    reason: Option<InvalidReason>,
}

impl Keyring {
    /// Verifies `document` at the time `now`.
    pub fn verify(&self, document: &AtpDocument, now: Micros) -> Verification {
        let members = document.members();
        let text = |member: &str| members.get(member).and_then(|value| value.as_str());
        let issued_at = text("issued_at").and_then(|text| instant::parse(&text));
        let finding = match document.signature() {
            Signature::Missing => SignatureFinding::none(InvalidReason::NoSignature),
            Signature::Unsupported => SignatureFinding::none(InvalidReason::UnsupportedAlgorithm),
            Signature::Claimed(claim) => self.examine(claim, document.signed_bytes()),
        };
        let distrust = finding.reason.or_else(|| {
            if plant::on(Plant::EmbeddedKey) && finding.valid {
                return None;
            }
            let key = finding.site_key.ok_or(InvalidReason::UnknownKey);
            key.and_then(|key| key.check(issued_at, now)).err()
        });
        let foreign = text("site").as_deref() != Some(self.site());
        let kind = text("type");
        let is_receipt = matches!(kind.as_deref(), Some(SETTLEMENT_TYPE | COMPENSATION_TYPE));
        let reason = distrust
            .or(foreign.then_some(InvalidReason::SiteMismatch))
            .or((!is_receipt).then_some(InvalidReason::NotAReceipt));
        Verification {
            ok: reason.is_none(),
            signature_valid: finding.valid,
            trusted: distrust.is_none(),
            key_id: finding.key_id,
            key_status: finding.site_key.map(|key| key.standing.word()),
            issued_at,
            age_seconds: issued_at.map(|at| now.0.saturating_sub(at.0).max(0) / SECOND_US),
            kind: kind.map(Into::into),
            stored: false,
            reason,
        }
    }

    fn examine(&self, claim: &SignatureClaim, message: &[u8]) -> SignatureFinding<'_> {
        let embedded = match &claim.embedded {
            Some(Embedded::Key(key)) => Some(&**key),
            Some(Embedded::NoKey) => {
                return SignatureFinding::of(claim, InvalidReason::KeyIdMismatch);
            }
            None => None,
        };
        let named = claim.key_id.as_deref();
        if let (Some(id), Some(key)) = (named, embedded)
            && id != key.id()
        {
            return SignatureFinding::of(claim, InvalidReason::KeyIdMismatch);
        }
        let Some(id) = named.or_else(|| embedded.map(AtpPublicKey::id)) else {
            // The short form names no key. A ring has a handful of keys, so all are tried.
            let signer = self
                .keys
                .iter()
                .find(|site| claim.verifies(&site.key, message));
            return match signer {
                Some(site) => SignatureFinding::signed(site.key.id(), Some(site), true),
                None => SignatureFinding::none(InvalidReason::SignatureMismatch),
            };
        };
        let site = self.find(id);
        // Without a key, nothing is known about the signature.
        let Some(key) = site.map(|site| &site.key).or(embedded) else {
            return SignatureFinding::of(claim, InvalidReason::UnknownKey);
        };
        SignatureFinding::signed(id, site, claim.verifies(key, message))
    }
}

impl SiteKey {
    /// Whether signatures of this key are trusted.
    fn check(&self, issued_at: Option<Micros>, now: Micros) -> Result<(), InvalidReason> {
        match &self.standing {
            KeyStanding::Next => return Err(InvalidReason::UnknownKey),
            KeyStanding::Revoked { revoked_at, .. } if now >= *revoked_at => {
                return Err(InvalidReason::KeyRevoked);
            }
            KeyStanding::Previous { valid_until, .. } => {
                // Without a date, it could have been signed after the revocation.
                if issued_at.is_none_or(|at| at > *valid_until) {
                    return Err(InvalidReason::KeyExpired);
                }
            }
            KeyStanding::Current | KeyStanding::Revoked { .. } => {}
        }
        match (issued_at, self.valid_from) {
            (Some(at), Some(from)) if at < from => Err(InvalidReason::KeyExpired),
            _ => Ok(()),
        }
    }
}

impl<'a> SignatureFinding<'a> {
    fn none(reason: InvalidReason) -> Self {
        Self {
            key_id: None,
            site_key: None,
            valid: false,
            reason: Some(reason),
        }
    }

    fn of(claim: &SignatureClaim, reason: InvalidReason) -> Self {
        Self {
            key_id: claim.key_id.clone(),
            ..Self::none(reason)
        }
    }

    fn signed(id: &str, site_key: Option<&'a SiteKey>, valid: bool) -> Self {
        Self {
            key_id: Some(id.to_owned()),
            site_key,
            valid,
            reason: (!valid).then_some(InvalidReason::SignatureMismatch),
        }
    }
}
