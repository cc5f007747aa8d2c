//! `POST /v1/messages`: a message from a program with an API key.
//!
//! Two shapes are accepted: upstream's, for topics, and one with `destination_kind` and `destination_ref`. Both become a
//! `send`, so the broker has one way to accept messages.

use serde::{Deserialize, Serialize};

use super::InvalidBody;
use crate::body::CarriedBody;
use crate::destination::{Destination, DestinationKind};
use crate::frame::{AckFrame, RawJson, SendFrame};
use crate::id::TopicName;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostBody {
    topic: Option<String>,
    #[serde(rename = "destination_kind")]
    destination_kind: Option<DestinationKind>,
    #[serde(rename = "destination_ref")]
    destination_ref: Option<String>,
    /// Clear text.
    body: Option<String>,
    ciphertext: Option<String>,
    nonce: Option<String>,
    priority: Option<String>,
    body_version: Option<u8>,
    mentions: Option<Vec<String>>,
    reply_to_id: Option<String>,
    #[serde(rename = "reply_to_id")]
    hashed_reply_to_id: Option<String>,
    meta: Option<RawJson>,
    #[serde(rename = "client_message_id")]
    client_message_id: Option<String>,
    #[serde(rename = "request_fingerprint")]
    request_fingerprint: Option<String>,
    #[serde(rename = "envelope_version")]
    envelope_version: Option<u32>,
    #[serde(rename = "body_sha256")]
    body_sha256: Option<String>,
}

/// A message to accept.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePost {
    pub destination: Destination,
    pub send: SendFrame,
}

impl MessagePost {
    /// Reads the body. The header `Idempotency-Key` precedes `client_message_id`.
    pub fn parse(body: &[u8], idempotency_key: Option<&str>) -> Result<Self, InvalidBody> {
        let invalid = |text: &str| InvalidBody(text.to_owned());
        let read: PostBody =
            serde_json::from_slice(body).map_err(|error| InvalidBody(error.to_string()))?;
        let destination = match (read.topic, read.destination_kind, read.destination_ref) {
            (Some(topic), None, None) => {
                let name = TopicName::parse(topic.trim_start_matches('#'));
                Destination::Topic(name.map_err(|error| InvalidBody(error.to_string()))?)
            }
            (None, Some(kind), Some(reference)) => Destination::from_parts(kind, &reference)
                .map_err(|error| InvalidBody(error.to_string()))?,
            _ => {
                return Err(invalid(
                    "either topic, or destination_kind and destination_ref",
                ));
            }
        };
        let carried = match (read.body, read.ciphertext) {
            (Some(text), None) if read.nonce.is_none() => CarriedBody::clear(text.as_bytes()),
            (None, Some(ciphertext)) => CarriedBody {
                nonce: read.nonce.unwrap_or_default(),
                ciphertext,
            },
            _ => return Err(invalid("either body, or ciphertext and nonce")),
        };
        let send = SendFrame {
            id: None,
            target_spec: destination.target().to_string(),
            priority: read.priority,
            nonce: carried.nonce,
            ciphertext: carried.ciphertext,
            mentions: read.mentions,
            reply_to_id: read.reply_to_id,
            body_version: read.body_version,
            client_message_id: idempotency_key
                .map(str::to_owned)
                .or(read.client_message_id),
            request_fingerprint: read.request_fingerprint,
            envelope_version: read.envelope_version,
            destination_kind: Some(destination.kind().as_str().to_owned()),
            destination_ref: Some(destination.reference()),
            hashed_reply_to_id: read.hashed_reply_to_id,
            meta: read.meta,
            body_sha256: read.body_sha256,
        };
        Ok(Self { destination, send })
    }
}

/// The answer: upstream's names first, then those of the protocol. A refusal has no ids.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessagePostAnswer {
    #[serde(skip)]
    status: u16,
    #[serde(rename = "messageId", skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(rename = "historyId", skip_serializing_if = "Option::is_none")]
    upstream_history_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_available: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seen_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_fingerprint_prefix: Option<String>,
}

impl MessagePostAnswer {
    /// The same answer as over the WebSocket. The error is its stable word alone, because the status says the rest.
    pub fn new(ack: AckFrame) -> Self {
        let word = |error: String| error.split(':').next().unwrap_or_default().to_owned();
        Self {
            status: ack.code.unwrap_or(503),
            message_id: ack.broker_message_id.clone(),
            upstream_history_id: ack.history_id.clone(),
            broker_message_id: ack.broker_message_id,
            client_message_id: ack.client_message_id,
            history_id: ack.history_id,
            duplicate: ack.duplicate,
            history_available: ack.history_available,
            first_seen_at: ack.first_seen_at,
            error: ack.error.map(word),
            conflict: ack.conflict,
            broker_fingerprint_prefix: ack.broker_fingerprint_prefix,
        }
    }

    /// The code that an `ack` would have.
    pub const fn status(&self) -> u16 {
        self.status
    }
}
