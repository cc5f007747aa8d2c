//! How a request proves that it acts for an agent: by its API key, as an operator, or by a signature.
//!
//! Invariant: a signature counts within the window around its timestamp, and once. The record of a used one outlives the window.

use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use consign_kernel::record::{Key, Kind};
use consign_web::secret_text::SecretText;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::records::{Agent, named};
use crate::api_key;
use crate::keys::BeamPublicKey;
use crate::problem::BeamProblem;
use crate::signed_text::BeamSignedText;
use crate::timestamp::{self, WINDOW_MS};

/// A timestamp may lie ahead by the window and counts until the window after it has passed. The rest is a reserve for clocks
/// that differ.
pub(super) const REMEMBERED_US: i64 = 3 * WINDOW_MS * 1_000;
/// The longest nonce of a signed request, in bytes.
const NONCE_BYTES_MAX: usize = 255;

/// The credentials and the signature of a request that changes an agent.
#[derive(Debug, Default)]
pub(crate) struct AgentProof {
    pub(crate) api_key: Option<SecretText>,
    /// The request has a session of an operator with all rights.
    pub(crate) is_admin: bool,
    pub(crate) signature: Option<TimedSignature>,
}

/// A signature of a text that contains this timestamp.
#[derive(Clone, Debug)]
pub(crate) struct TimedSignature {
    pub(crate) signature: String,
    pub(crate) timestamp: String,
}

/// A signature of a text that contains a timestamp and a nonce.
#[derive(Clone, Debug)]
pub(crate) struct NonceSignature {
    pub(crate) signature: String,
    pub(crate) timestamp: String,
    pub(crate) nonce: String,
}

/// What a proof was.
#[derive(Debug)]
pub(super) enum Proven {
    Credential,
    Signature(UsedSignature),
}

/// The record of a signature that must not be used again.
#[derive(Debug)]
pub(super) struct UsedSignature(pub(super) Key);

impl AgentProof {
    pub(super) fn has_api_key_of(&self, agent: &Agent) -> bool {
        match (&self.api_key, &agent.api_key_hash) {
            (Some(presented), Some(hash)) => api_key::matches(hash, presented.reveal()),
            _ => false,
        }
    }

    /// Checks the proof against the agent as it is now. `text` is what the signature must cover.
    pub(super) fn check(
        &self,
        agent: &Agent,
        now: Micros,
        text: impl FnOnce(&str) -> BeamSignedText,
    ) -> Option<Proven> {
        if self.is_admin || self.has_api_key_of(agent) {
            return Some(Proven::Credential);
        }
        let signature = self.signature.as_ref()?;
        let used = signature.check(agent, now, text)?;
        Some(Proven::Signature(used))
    }
}

impl TimedSignature {
    fn check(
        &self,
        agent: &Agent,
        now: Micros,
        text: impl FnOnce(&str) -> BeamSignedText,
    ) -> Option<UsedSignature> {
        let text = text(&self.timestamp);
        let is_valid = is_current(&self.timestamp, now) && is_signed(agent, &text, &self.signature);
        // One text has many spellings of its signature, so the text is recorded.
        is_valid.then(|| UsedSignature(used_key(&agent.beam_id, "text", &text.to_text())))
    }
}

impl NonceSignature {
    /// The text contains timestamp and nonce, in this order of the arguments.
    pub(super) fn check(
        &self,
        agent: &Agent,
        now: Micros,
        text: impl FnOnce(&str, &str) -> BeamSignedText,
    ) -> Option<UsedSignature> {
        let text = text(&self.timestamp, &self.nonce);
        let is_valid = !self.nonce.is_empty()
            && self.nonce.len() <= NONCE_BYTES_MAX
            && is_current(&self.timestamp, now)
            && is_signed(agent, &text, &self.signature);
        is_valid.then(|| UsedSignature(used_key(&agent.beam_id, "nonce", &self.nonce)))
    }
}

/// Whether the current key of the agent signed the text.
pub(super) fn is_signed(agent: &Agent, text: &BeamSignedText, signature: &str) -> bool {
    let key = active_public_key(agent);
    key.is_some_and(|key| text.verify(&key, signature))
}

/// The current key of the agent.
pub(super) fn active_public_key(agent: &Agent) -> Option<BeamPublicKey> {
    BeamPublicKey::parse(&agent.active_key()?.public_key).ok()
}

/// The refusal of a signature that was used before.
pub(super) fn replayed(code: Code) -> BeamProblem {
    BeamProblem::new(code, "This signed request was already used")
}

fn is_current(text: &str, now: Micros) -> bool {
    timestamp::parse(text).is_some_and(|at| timestamp::is_current(at, now))
}

fn used_key(beam_id: &str, what: &str, value: &str) -> Key {
    let mut hasher = Sha256::new();
    for part in [beam_id, what, value] {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    named(Kind::BeamUsedNonce, &HEXLOWER.encode(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::super::records::AgentKey;
    use super::*;
    use crate::keys::BeamPrivateKey;

    const NOW: Micros = Micros(1_767_225_600_000_000);
    const ID: &str = "alice@acme.beam.directory";

    fn agent() -> Agent {
        let public_key = key().public_key().to_string();
        Agent {
            beam_id: ID.to_owned(),
            keys: vec![AgentKey {
                public_key,
                ..AgentKey::default()
            }],
            ..Agent::default()
        }
    }

    fn key() -> BeamPrivateKey {
        BeamPrivateKey::from_seed(&[1; 32])
    }

    fn signed_at(seconds: i64) -> TimedSignature {
        let timestamp = timestamp::format(NOW.plus(seconds * 1_000_000));
        let signature = BeamSignedText::config(ID, &timestamp).sign(&key());
        TimedSignature {
            signature,
            timestamp,
        }
    }

    fn used(signature: &TimedSignature) -> Option<Key> {
        let text = |timestamp: &str| BeamSignedText::config(ID, timestamp);
        let used = signature.check(&agent(), NOW, text);
        used.map(|used| used.0)
    }

    #[test]
    fn a_signature_counts_within_the_window() {
        for (seconds, counts) in [
            (0, true),
            (300, true),
            (-300, true),
            (301, false),
            (-301, false),
        ] {
            assert_eq!(used(&signed_at(seconds)).is_some(), counts, "{seconds}");
        }
        for timestamp in ["", "now", "1767225600000"] {
            let signature = BeamSignedText::config(ID, timestamp).sign(&key());
            let timed = TimedSignature {
                signature,
                timestamp: timestamp.to_owned(),
            };
            assert_eq!(used(&timed), None, "{timestamp}");
        }
    }

    #[test]
    fn other_spellings_of_a_signature_are_the_same_use() {
        let given = signed_at(0);
        let respelled = TimedSignature {
            signature: given
                .signature
                .trim_end_matches('=')
                .replace('+', "-")
                .replace('/', "_"),
            timestamp: given.timestamp.clone(),
        };
        assert_ne!(given.signature, respelled.signature);
        assert_eq!(used(&given), used(&respelled));
        assert!(used(&given).is_some());
        assert_ne!(used(&given), used(&signed_at(1)));
    }

    #[test]
    fn a_revoked_key_signs_nothing() {
        let mut agent = agent();
        agent.keys[0].revoked_at = Some(1);
        let text = |timestamp: &str| BeamSignedText::config(ID, timestamp);
        assert!(signed_at(0).check(&agent, NOW, text).is_none());
    }
}
