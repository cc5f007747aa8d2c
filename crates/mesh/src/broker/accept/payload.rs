//! The payload of a message row, and of an item for workers.
//!
//! Invariant: the names of the members are columns of the views `topic_message`, `message_queue` and `mention_index`, so
//! they never change; the message of a push is made from this payload and its row alone.

use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::MeshSender;
use super::plan::Plan;
use crate::accept::{CheckedSend, SendKey};
use crate::broker::time_text::text_of_us;
use crate::destination::{Destination, DestinationKind};
use crate::frame::{BrokerFrame, PushFrame, RawJson};
use crate::id::BrokerMessageId;
use crate::keys::MeshPublicKey;
use crate::limits::FRAME_BYTES_MAX;
use crate::priority::MeshPriority;

/// What the ledger keeps of a message besides its row.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeshPayload {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
    pub(crate) target_spec: String,
    pub(crate) priority: MeshPriority,
    nonce: String,
    ciphertext: String,
    body_version: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sender_session_pubkey: Option<MeshPublicKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mentions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_fingerprint: Option<String>,
    /// As the sender wrote it, also if ids are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_message_id: Option<String>,
    pub(crate) sender_pubkey: MeshPublicKey,
    sender_name: String,
    /// The connection that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<String>,
}

/// A character of a text becomes at most this many bytes of JSON.
const ESCAPED_BYTES_MAX: usize = 6;
/// All members of a push that its sender does not choose freely, with their names.
const OTHER_BYTES_MAX: usize = 8_192;

/// What a push takes from the row of its message.
#[derive(Clone, Copy)]
struct PushedRow<'a> {
    id: IntentId,
    mesh_id: &'a str,
    sender_member_id: Option<&'a str>,
    topic: Option<&'a str>,
    created_at: i64,
}

/// Shows where it goes, and nothing of its content.
impl std::fmt::Debug for MeshPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshPayload")
            .field("target_spec", &self.target_spec)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

impl MeshPayload {
    pub(super) fn new(
        sender: &MeshSender,
        checked: &CheckedSend,
        key: &SendKey,
        plan: &Plan,
    ) -> Self {
        let fingerprint = match key {
            SendKey::Unkeyed => None,
            SendKey::Keyed { fingerprint, .. } => Some(fingerprint.to_string()),
        };
        Self {
            topic_id: plan.topic.as_ref().map(|topic| topic.value.id.clone()),
            target_spec: checked.target.to_string(),
            priority: checked.priority,
            nonce: checked.body.nonce.clone(),
            ciphertext: checked.body.ciphertext.clone(),
            body_version: checked.body_version,
            reply_to_id: checked.reply_to_id.clone(),
            sender_session_pubkey: sender.session,
            mentions: plan.mentions.clone(),
            meta: checked.meta_text.as_deref().and_then(RawJson::parse),
            request_fingerprint: fingerprint,
            client_message_id: checked.id().map(ToString::to_string),
            sender_pubkey: plan.sender_key,
            sender_name: plan.sender_name.clone(),
            connection: sender.connection.clone(),
        }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a message has string keys only")
    }

    /// `None` if this version cannot read it.
    pub(crate) fn parse(payload: &str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }

    /// What a worker gets that claims an item of a named queue. A post to a topic names it.
    pub(super) fn to_work(&self, sender: &MeshSender, plan: &Plan, id: IntentId) -> String {
        let Self {
            nonce,
            ciphertext,
            body_version,
            reply_to_id,
            meta,
            client_message_id,
            sender_pubkey,
            sender_name,
            priority,
            ..
        } = self;
        json!({
            "message_id": BrokerMessageId::from_bytes(id.0),
            "mesh_id": sender.mesh.id,
            "topic": plan.topic.as_ref().map(|topic| &topic.value.name),
            "client_message_id": client_message_id,
            "sender_member_id": sender.member_id,
            "sender_pubkey": sender_pubkey,
            "sender_name": sender_name,
            "priority": priority,
            "nonce": nonce,
            "ciphertext": ciphertext,
            "body_version": body_version,
            "reply_to_id": reply_to_id,
            "meta": meta,
        })
        .to_string()
    }

    /// Whether its push is a frame that every client reads. `topic` is the name of the topic that it goes to.
    pub(super) fn fits_push(&self, sender: &MeshSender, topic: Option<&str>) -> bool {
        let chosen = [
            Some(&self.nonce),
            Some(&self.ciphertext),
            self.reply_to_id.as_ref(),
        ];
        let chosen: usize = chosen.iter().flatten().map(|text| text.len()).sum();
        let chosen = chosen + self.meta.as_ref().map_or(0, |meta| meta.text().len());
        // Escaped at its longest, it fits beside everything else: the frame of a short message is not written twice.
        if chosen * ESCAPED_BYTES_MAX + OTHER_BYTES_MAX <= FRAME_BYTES_MAX {
            return true;
        }
        let push = self.push_of(PushedRow {
            id: IntentId([0; 16]),
            mesh_id: &sender.mesh.id,
            sender_member_id: Some(&sender.member_id),
            topic,
            created_at: 0,
        });
        crate::frame::fits(&BrokerFrame::from(push).to_text(None))
    }

    /// The frame for a recipient. `row` is the row of the message.
    pub(crate) fn to_push(&self, row: &Intent) -> PushFrame {
        let is_topic = row.goal == DestinationKind::Topic.as_str();
        self.push_of(PushedRow {
            id: row.id,
            mesh_id: &row.namespace,
            sender_member_id: row.ties.sender.as_deref(),
            topic: row.target.as_deref().filter(|_| is_topic),
            created_at: row.created_at.0,
        })
    }

    fn push_of(&self, row: PushedRow<'_>) -> PushFrame {
        PushFrame {
            message_id: BrokerMessageId::from_bytes(row.id.0).to_string(),
            mesh_id: row.mesh_id.to_owned(),
            sender_pubkey: self
                .sender_session_pubkey
                .unwrap_or(self.sender_pubkey)
                .to_string(),
            sender_member_pubkey: Some(self.sender_pubkey.to_string()),
            sender_member_id: row.sender_member_id.map(str::to_owned),
            sender_name: Some(self.sender_name.clone()),
            topic: row.topic.map(str::to_owned),
            reply_to_id: self.reply_to_id.clone(),
            priority: self.priority.as_str().to_owned(),
            nonce: self.nonce.clone(),
            ciphertext: self.ciphertext.clone(),
            created_at: text_of_us(row.created_at),
            body_version: Some(self.body_version),
            client_message_id: self.client_message_id.clone(),
            request_fingerprint: self.request_fingerprint.clone(),
            meta: self.meta.clone(),
            subtype: None,
            event: None,
            event_data: None,
        }
    }

    /// Where the message goes; `None` if the row was edited by hand.
    pub(crate) fn destination(row: &Intent) -> Option<Destination> {
        let kind = DestinationKind::parse(&row.goal)?;
        Destination::from_parts(kind, row.target.as_deref()?).ok()
    }

    /// The entry of a topic's history.
    pub(crate) fn to_history(&self, row: &Intent) -> crate::frame::TopicHistoryEntry {
        crate::frame::TopicHistoryEntry {
            id: BrokerMessageId::from_bytes(row.id.0).to_string(),
            sender_pubkey: self.sender_pubkey.to_string(),
            sender_member_id: row.ties.sender.clone().unwrap_or_default(),
            sender_name: self.sender_name.clone(),
            nonce: self.nonce.clone(),
            ciphertext: self.ciphertext.clone(),
            body_version: self.body_version,
            reply_to_id: self.reply_to_id.clone(),
            created_at: text_of_us(row.created_at.0),
        }
    }
}
