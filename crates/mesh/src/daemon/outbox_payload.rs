//! What a row of the outbox keeps of its message: all that a frame needs, encrypted once.
//!
//! Invariant: a row gives the same frame at every attempt. The names are columns of the protocol's table, which shows them.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};

use super::outbox_queue::RowKind;
use crate::frame::{RawJson, SendFrame};
use crate::ipc::INTENT_KIND;

/// The payload of a row in the ledger. Another program may have edited it, so everything but the id may be missing.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct OutboxPayload {
    pub(super) client_message_id: String,
    pub(super) request_fingerprint: String,
    /// The body as hex digits.
    #[serde(default)]
    pub(super) payload: String,
    #[serde(default)]
    pub(super) mesh: String,
    #[serde(default)]
    pub(super) target_spec: Option<String>,
    #[serde(default)]
    pub(super) nonce: Option<String>,
    #[serde(default)]
    pub(super) ciphertext: Option<String>,
    #[serde(default)]
    pub(super) priority: Option<String>,
    #[serde(default)]
    pub(super) destination_kind: Option<String>,
    #[serde(default)]
    pub(super) destination_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to_id: Option<String>,
    /// Canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<String>,
    #[serde(default)]
    pub(super) body_sha256: Option<String>,
    #[serde(default)]
    pub(super) envelope_version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body_version: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) mentions: Vec<String>,
    /// The public key of the sender that sealed a direct message. Rows of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed_by: Option<String>,
}

impl OutboxPayload {
    /// `None` if the row has no target or no body; such a row cannot be sent.
    pub(super) fn frame(&self) -> Option<SendFrame> {
        Some(SendFrame {
            id: Some(self.client_message_id.clone()),
            target_spec: self.target_spec.clone()?,
            priority: self.priority.clone(),
            nonce: self.nonce.clone().unwrap_or_default(),
            ciphertext: self.ciphertext.clone()?,
            mentions: (!self.mentions.is_empty()).then(|| self.mentions.clone()),
            reply_to_id: self.reply_to_id.clone(),
            body_version: self.body_version,
            client_message_id: Some(self.client_message_id.clone()),
            request_fingerprint: Some(self.request_fingerprint.clone()),
            envelope_version: self.envelope_version,
            destination_kind: self.destination_kind.clone(),
            destination_ref: self.destination_ref.clone(),
            hashed_reply_to_id: self.reply_to_id.clone(),
            meta: self.meta.as_deref().and_then(RawJson::parse),
            body_sha256: self.body_sha256.clone(),
        })
    }

    /// What the row is for.
    pub(super) fn kind(&self) -> RowKind {
        if self.destination_kind.as_deref() == Some(INTENT_KIND) {
            RowKind::Intent
        } else {
            RowKind::Message
        }
    }

    /// The request to publish an intent; `None` if the body is no text.
    pub(super) fn request(&self) -> Option<String> {
        let body = HEXLOWER_PERMISSIVE.decode(self.payload.as_bytes()).ok()?;
        String::from_utf8(body).ok()
    }

    pub(super) fn set_body(&mut self, body: &[u8]) {
        self.payload = HEXLOWER.encode(body);
    }
}

/// Shows where a message goes, and nothing of its content.
impl std::fmt::Debug for OutboxPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxPayload")
            .field("client_message_id", &self.client_message_id)
            .field("target_spec", &self.target_spec)
            .field("destination_ref", &self.destination_ref)
            .finish_non_exhaustive()
    }
}
