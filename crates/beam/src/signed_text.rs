//! The exact text that each signature of Beam covers.
//!
//! Invariant: this module alone knows these texts. Some have a fixed order of members, the others
//! are sorted at all levels; what a test vector does not fix here, no other peer can verify.

#[cfg(test)]
mod tests;

use consign_kernel::plant::{self, Plant};

use crate::frame::{IntentFrame, ResultFrame};
use crate::keys::{BeamPrivateKey, BeamPublicKey};
use crate::text::BeamValue;

/// A text to sign or to verify.
#[derive(Debug, Clone, PartialEq)]
pub struct BeamSignedText(BeamValue);

/// The fields of a profile; absent ones are signed as null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignedProfile<'a> {
    pub description: Option<&'a str>,
    pub logo_url: Option<&'a str>,
    pub website: Option<&'a str>,
}

impl BeamSignedText {
    /// The payload keeps its own order. Version, signature and unknown fields are not covered.
    pub fn intent(frame: &IntentFrame) -> Self {
        let mut payload = BeamValue::Object(frame.payload().clone());
        if plant::on(Plant::SortedPayload) {
            payload = payload.sorted();
        }
        Self(BeamValue::object([
            ("type", "intent".into()),
            ("from", frame.from().into()),
            ("to", frame.to().into()),
            ("intent", frame.intent().into()),
            ("payload", payload),
            ("timestamp", frame.timestamp().into()),
            ("nonce", frame.nonce().into()),
        ]))
    }

    /// All fields but the signature, unknown ones included, sorted.
    pub fn result(frame: &ResultFrame) -> Self {
        let mut fields = frame.fields().clone();
        fields.remove("signature");
        Self(BeamValue::Object(fields).sorted())
    }

    pub fn heartbeat(beam_id: &str, timestamp: &str, nonce: &str) -> Self {
        Self(BeamValue::object([
            ("type", "heartbeat".into()),
            ("beamId", beam_id.into()),
            ("timestamp", timestamp.into()),
            ("nonce", nonce.into()),
        ]))
    }

    /// `new_public_key` is the text that was sent, not its canonical form.
    pub fn keys_rotate(beam_id: &str, new_public_key: &str, timestamp: &str) -> Self {
        Self::sorted([
            ("action", "keys.rotate"),
            ("beamId", beam_id),
            ("newPublicKey", new_public_key),
            ("timestamp", timestamp),
        ])
    }

    /// `public_key` is the text that was sent, not its canonical form.
    pub fn keys_revoke(beam_id: &str, public_key: &str, timestamp: &str) -> Self {
        Self::sorted([
            ("action", "keys.revoke"),
            ("beamId", beam_id),
            ("publicKey", public_key),
            ("timestamp", timestamp),
        ])
    }

    pub fn config(beam_id: &str, timestamp: &str) -> Self {
        Self::sorted([
            ("action", "config"),
            ("beamId", beam_id),
            ("timestamp", timestamp),
        ])
    }

    pub fn visibility(beam_id: &str, visibility: &str, timestamp: &str) -> Self {
        Self::sorted([
            ("beamId", beam_id),
            ("visibility", visibility),
            ("timestamp", timestamp),
        ])
    }

    pub fn profile_update(
        beam_id: &str,
        profile: &SignedProfile<'_>,
        timestamp: &str,
        nonce: &str,
    ) -> Self {
        let profile = BeamValue::object([
            ("description", profile.description.into()),
            ("logo_url", profile.logo_url.into()),
            ("website", profile.website.into()),
        ]);
        Self(BeamValue::object([
            ("type", "agent_profile_update".into()),
            ("beamId", beam_id.into()),
            ("profile", profile),
            ("timestamp", timestamp.into()),
            ("nonce", nonce.into()),
        ]))
    }

    /// `expires_at` is the number that was sent, in milliseconds since 1970.
    pub fn delegation(grantor: &str, grantee: &str, scope: &str, expires_at: f64) -> Self {
        Self(BeamValue::object([
            ("type", "delegation".into()),
            ("grantor_beam_id", grantor.into()),
            ("grantee_beam_id", grantee.into()),
            ("scope", scope.into()),
            ("expires_at", expires_at.into()),
        ]))
    }

    pub fn delegation_revoke(grantor: &str, delegation_id: i64) -> Self {
        Self(BeamValue::object([
            ("type", "delegation-revoke".into()),
            ("grantor_beam_id", grantor.into()),
            ("delegation_id", delegation_id.into()),
        ]))
    }

    fn sorted<const N: usize>(members: [(&str, &str); N]) -> Self {
        let members = members.map(|(key, text)| (key, BeamValue::from(text)));
        Self(BeamValue::object(members).sorted())
    }

    pub fn to_text(&self) -> String {
        self.0.to_text()
    }

    /// The signature in standard base64.
    pub fn sign(&self, key: &BeamPrivateKey) -> String {
        key.sign(self.to_text().as_bytes())
    }

    /// Whether the key signed this text.
    pub fn verify(&self, key: &BeamPublicKey, signature: &str) -> bool {
        key.verify(self.to_text().as_bytes(), signature)
    }

    /// Whether the key signed this text, or the same text with all of Unicode escaped.
    ///
    /// The Python SDK signs the escaped text. Both texts have one reading, so a signature of one
    /// proves the other.
    fn verify_escaped_too(&self, key: &BeamPublicKey, signature: &str) -> bool {
        let text = self.to_text();
        if key.verify(text.as_bytes(), signature) {
            return true;
        }
        let escaped = self.0.to_ascii_text();
        escaped != text && key.verify(escaped.as_bytes(), signature)
    }
}

/// Whether the key signed the intent. A frame without a signature is not verified.
pub fn verify_intent(frame: &IntentFrame, key: &BeamPublicKey) -> bool {
    let text = BeamSignedText::intent(frame);
    let signature = frame.signature();
    signature.is_some_and(|signature| {
        text.verify_escaped_too(key, signature) || plant::on(Plant::AnyIntentSignature)
    })
}

/// Whether the key signed the result. A frame without a signature is not verified.
pub fn verify_result(frame: &ResultFrame, key: &BeamPublicKey) -> bool {
    let text = BeamSignedText::result(frame);
    let signature = frame.signature();
    signature.is_some_and(|signature| text.verify_escaped_too(key, signature))
}
