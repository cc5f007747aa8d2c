//! Agents of Beam with fixed keys: signed intents and result frames for campaigns and the simulation.

use consign_beam::frame::{IntentFields, IntentFrame, ResultFields, ResultFrame};
use consign_beam::keys::BeamPrivateKey;
use consign_beam::signed_text::BeamSignedText;
use consign_beam::text::BeamObject;
use consign_beam::timestamp;
use consign_kernel::ids::Micros;

/// Intents that the built-in catalog has and whose payload may be any object with a text as its message.
pub const INTENT_TYPES: [&str; 2] = ["agent.ping", "agent.introduce"];

#[derive(Debug)]
pub struct TestAgent {
    pub beam_id: String,
    seed: [u8; 32],
    key: BeamPrivateKey,
}

impl TestAgent {
    /// An agent of the organisation `acme`. Agents with different seeds have different keys.
    pub fn new(name: &str, seed: u8) -> Self {
        let seed = [seed; 32];
        Self {
            beam_id: format!("{name}@acme.beam.directory"),
            seed,
            key: BeamPrivateKey::from_seed(&seed),
        }
    }

    /// SPKI as base64.
    pub fn public_key(&self) -> String {
        self.key.public_key().to_string()
    }

    /// PKCS#8 as base64.
    pub fn private_key(&self) -> String {
        BeamPrivateKey::text_of_seed(&self.seed).to_string()
    }

    /// A signed intent with a message as its payload.
    pub fn intent(
        &self,
        to: &str,
        intent: &str,
        nonce: &str,
        message: &str,
        at: Micros,
    ) -> IntentFrame {
        let mut frame = IntentFrame::new(IntentFields {
            from: self.beam_id.clone(),
            to: to.to_owned(),
            intent: intent.to_owned(),
            payload: payload(message),
            nonce: nonce.to_owned(),
            timestamp: timestamp::format(at),
        });
        let signature = BeamSignedText::intent(&frame).sign(&self.key);
        frame.set_signature(signature);
        frame
    }
}

/// An object with a message.
pub fn payload(message: &str) -> BeamObject {
    let mut payload = BeamObject::new();
    payload.insert("message", message);
    payload
}

/// The text of a result frame: a success with this answer, or a failure with this code.
pub fn result_text(nonce: &str, answer: &str, failure: Option<&str>) -> String {
    let frame = ResultFrame::new(ResultFields {
        success: failure.is_none(),
        nonce,
        timestamp: "2026-01-01T00:00:01.000Z",
        payload: Some(payload(answer)),
        error: failure.map(|_| "not possible"),
        error_code: failure,
        latency_ms: Some(3),
    });
    frame.to_value().to_text()
}

/// The socket message with a result frame.
pub fn result_message(frame: &str) -> String {
    format!(r#"{{"type":"result","frame":{frame}}}"#)
}
