//! Agents with keys, and the frames that they sign.
#![allow(
    dead_code,
    reason = "each module uses some of the helpers, and all are compiled together"
)]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_beam::frame::{IntentFields, IntentFrame, ResultFields, ResultFrame};
use consign_beam::keys::BeamPrivateKey;
use consign_beam::signed_text::BeamSignedText;
use consign_beam::text::{self, BeamValue};
use serde_json::{Value, json};

use crate::world::World;

/// An agent with its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) beam_id: String,
    seed: [u8; 32],
}

impl Identity {
    pub(crate) fn new(beam_id: &str, seed: u8) -> Self {
        Self {
            beam_id: beam_id.to_owned(),
            seed: [seed; 32],
        }
    }

    pub(crate) fn alice() -> Self {
        Self::new("alice@acme.beam.directory", 1)
    }

    pub(crate) fn bob() -> Self {
        Self::new("bob@acme.beam.directory", 2)
    }

    pub(crate) fn key(&self) -> BeamPrivateKey {
        BeamPrivateKey::from_seed(&self.seed)
    }

    /// PKCS#8 as base64, as in an identity bundle.
    pub(crate) fn private_key(&self) -> String {
        let prefix = [
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        BASE64_STANDARD.encode([&prefix[..], &self.seed].concat())
    }

    pub(crate) fn public_key(&self) -> String {
        self.key().public_key().to_string()
    }

    /// A signed frame to `to`.
    pub(crate) fn frame(
        &self,
        world: &World,
        to: &str,
        intent: &str,
        payload: &Value,
        nonce: &str,
    ) -> Value {
        self.frame_at(&world.now_text(), to, intent, payload, nonce)
    }

    pub(crate) fn frame_at(
        &self,
        timestamp: &str,
        to: &str,
        intent: &str,
        payload: &Value,
        nonce: &str,
    ) -> Value {
        let payload = text::parse(payload.to_string().as_bytes()).unwrap();
        let BeamValue::Object(payload) = payload else {
            panic!("a payload is an object");
        };
        let mut frame = IntentFrame::new(IntentFields {
            from: self.beam_id.clone(),
            to: to.to_owned(),
            intent: intent.to_owned(),
            payload,
            nonce: nonce.to_owned(),
            timestamp: timestamp.to_owned(),
        });
        let signature = BeamSignedText::intent(&frame).sign(&self.key());
        frame.set_signature(signature);
        serde_json::from_str(&frame.to_value().to_text()).unwrap()
    }

    /// A signed message to the other, as `conversation.message`.
    pub(crate) fn message(&self, world: &World, to: &Self, nonce: &str) -> Value {
        let payload = json!({"message": "hello"});
        self.frame(world, &to.beam_id, "conversation.message", &payload, nonce)
    }

    /// The message of a socket with a signed result.
    pub(crate) fn result(&self, nonce: &str, payload: &Value) -> Value {
        let BeamValue::Object(payload) = text::parse(payload.to_string().as_bytes()).unwrap()
        else {
            panic!("a payload is an object");
        };
        let mut frame = ResultFrame::new(ResultFields {
            success: true,
            nonce,
            timestamp: "2026-01-01T00:00:01.000Z",
            payload: Some(payload),
            error: None,
            error_code: None,
            latency_ms: Some(3),
        });
        let signature = BeamSignedText::result(&frame).sign(&self.key());
        frame.set_signature(&signature);
        let frame: Value = serde_json::from_str(&frame.to_value().to_text()).unwrap();
        json!({"type": "result", "frame": frame})
    }

    /// The same for a failure.
    pub(crate) fn failure(&self, nonce: &str, code: &str) -> Value {
        let mut frame = ResultFrame::new(ResultFields {
            success: false,
            nonce,
            timestamp: "2026-01-01T00:00:01.000Z",
            payload: None,
            error: Some("no"),
            error_code: Some(code),
            latency_ms: None,
        });
        let signature = BeamSignedText::result(&frame).sign(&self.key());
        frame.set_signature(&signature);
        let frame: Value = serde_json::from_str(&frame.to_value().to_text()).unwrap();
        json!({"type": "result", "frame": frame})
    }
}
