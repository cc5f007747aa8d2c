//! Messages and what is said about them: `send`, `ack`, `push`, `client_ack`, `error`, `message_status`.

use serde::{Deserialize, Serialize};

use super::RawJson;
use crate::destination::DestinationKind;
use crate::id::BrokerMessageId;
use crate::limits::DISPLAY_NAME_CHARS_MAX;

/// Of a public key.
const KEY_DIGITS: usize = 64;
/// A time with milliseconds, as the broker writes all of them.
const LONGEST_TIME: &str = "2000-01-01T00:00:00.000Z";

/// A message to accept. Members of the fingerprint are texts here: [`crate::accept`] checks them, because a refused `send`
/// gets an `ack` that names the reason.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendFrame {
    /// Repeated in the `ack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub target_spec: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    #[serde(default)]
    pub nonce: String,
    pub ciphertext: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_version: Option<u8>,
    #[serde(
        default,
        rename = "client_message_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub client_message_id: Option<String>,
    #[serde(
        default,
        rename = "request_fingerprint",
        skip_serializing_if = "Option::is_none"
    )]
    pub request_fingerprint: Option<String>,
    #[serde(
        default,
        rename = "envelope_version",
        skip_serializing_if = "Option::is_none"
    )]
    pub envelope_version: Option<u32>,
    #[serde(
        default,
        rename = "destination_kind",
        skip_serializing_if = "Option::is_none"
    )]
    pub destination_kind: Option<String>,
    #[serde(
        default,
        rename = "destination_ref",
        skip_serializing_if = "Option::is_none"
    )]
    pub destination_ref: Option<String>,
    /// The same as `replyToId`, under the name that the fingerprint uses.
    #[serde(
        default,
        rename = "reply_to_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub hashed_reply_to_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
    #[serde(
        default,
        rename = "body_sha256",
        skip_serializing_if = "Option::is_none"
    )]
    pub body_sha256: Option<String>,
}

/// Shows where a message goes, and nothing of its content.
impl std::fmt::Debug for SendFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendFrame")
            .field("id", &self.id)
            .field("target_spec", &self.target_spec)
            .field("client_message_id", &self.client_message_id)
            .finish_non_exhaustive()
    }
}

/// What became of a `send`. The members after `error` are this implementation's, those before it upstream's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AckFrame {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The same as `broker_message_id`; empty if the message was refused.
    #[serde(default, rename = "messageId")]
    pub message_id: String,
    pub queued: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_available: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_fingerprint_prefix: Option<String>,
}

/// A message for this connection.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushFrame {
    pub message_id: String,
    pub mesh_id: String,
    /// The key of the session or the member that sent it, or `system`.
    pub sender_pubkey: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_member_pubkey: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_member_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    pub priority: String,
    #[serde(default)]
    pub nonce: String,
    #[serde(default)]
    pub ciphertext: String,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_version: Option<u8>,
    #[serde(
        default,
        rename = "client_message_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub client_message_id: Option<String>,
    #[serde(
        default,
        rename = "request_fingerprint",
        skip_serializing_if = "Option::is_none"
    )]
    pub request_fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtype: Option<PushSubtype>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_data: Option<RawJson>,
}

/// Shows who sent it, and nothing of its content.
impl std::fmt::Debug for PushFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushFrame")
            .field("message_id", &self.message_id)
            .field("sender_pubkey", &self.sender_pubkey)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl PushFrame {
    /// The sender of what the broker itself reports.
    pub const SYSTEM: &'static str = "system";

    /// An event of the broker: it has no body, and `created_at` is its time.
    pub fn system(
        mesh_id: &str,
        message_id: &str,
        created_at: &str,
        event: &str,
        data: Option<RawJson>,
    ) -> Self {
        Self {
            message_id: message_id.to_owned(),
            mesh_id: mesh_id.to_owned(),
            sender_pubkey: Self::SYSTEM.to_owned(),
            sender_member_pubkey: None,
            sender_member_id: None,
            sender_name: None,
            topic: None,
            reply_to_id: None,
            priority: "low".to_owned(),
            nonce: String::new(),
            ciphertext: String::new(),
            created_at: created_at.to_owned(),
            body_version: None,
            client_message_id: None,
            request_fingerprint: None,
            meta: None,
            subtype: Some(PushSubtype::System),
            event: Some(event.to_owned()),
            event_data: data,
        }
    }

    /// The push that a broker makes of a message of this member at most: whatever the broker chooses has its greatest length.
    pub fn longest(send: &SendFrame, mesh_id: &str, member_id: &str) -> Self {
        let key = "0".repeat(KEY_DIGITS);
        let is_topic = send.destination_kind.as_deref() == Some(DestinationKind::Topic.as_str());
        Self {
            message_id: BrokerMessageId::from_bytes([0; 16]).to_string(),
            mesh_id: mesh_id.to_owned(),
            sender_pubkey: key.clone(),
            sender_member_pubkey: Some(key),
            sender_member_id: Some(member_id.to_owned()),
            sender_name: Some("\u{10ffff}".repeat(DISPLAY_NAME_CHARS_MAX)),
            topic: send.destination_ref.clone().filter(|_| is_topic),
            reply_to_id: send.reply_to_id.clone(),
            priority: send.priority.clone().unwrap_or_default(),
            nonce: send.nonce.clone(),
            ciphertext: send.ciphertext.clone(),
            created_at: LONGEST_TIME.to_owned(),
            body_version: Some(u8::MAX),
            client_message_id: send.client_message_id.clone(),
            request_fingerprint: send.request_fingerprint.clone(),
            meta: send.meta.clone(),
            subtype: None,
            event: None,
            event_data: None,
        }
    }

    /// The key of the row in the receiver's inbox.
    pub fn inbox_key(&self) -> &str {
        self.client_message_id
            .as_deref()
            .unwrap_or(&self.message_id)
    }
}

/// The ids of a push that this version cannot read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnreadPush {
    #[serde(rename = "type")]
    kind: String,
    message_id: String,
    #[serde(default, rename = "client_message_id")]
    client_message_id: Option<String>,
}

impl ClientAck {
    /// The acknowledgement of a text that is a push and cannot be read as one; `None` if it names no message.
    pub fn of_unread(text: &str) -> Option<Self> {
        let push: UnreadPush = serde_json::from_str(text).ok()?;
        (push.kind == "push").then_some(Self {
            client_message_id: push.client_message_id,
            broker_message_id: Some(push.message_id),
        })
    }
}

/// Pushes that are no message of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PushSubtype {
    Reminder,
    System,
}

/// The recipient has stored a message. One of the two ids is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientAck {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_message_id: Option<String>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFrame {
    pub code: String,
    pub message: String,
    /// The `id` of the `send`, or the id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl ErrorFrame {
    /// The answer to a first frame that is no hello. The connection stays open.
    pub fn no_hello() -> Self {
        Self {
            code: "no_hello".to_owned(),
            message: "must send hello first".to_owned(),
            id: None,
        }
    }
}

/// Asks what became of an accepted message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageStatusRequest {
    pub message_id: String,
}

/// The answer to [`MessageStatusRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageStatusResult {
    pub message_id: String,
    pub target_spec: String,
    pub delivered: bool,
    pub delivered_at: Option<String>,
    #[serde(default)]
    pub recipients: Vec<RawJson>,
}
