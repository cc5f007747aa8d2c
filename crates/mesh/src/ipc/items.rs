//! Entries of the lists that the local interface returns. Times are RFC 3339 in UTC with milliseconds.

use serde::{Deserialize, Serialize};

use crate::outbox::OutboxStatus;
use crate::role::TopicVisibility;

/// One row of `GET /v1/outbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxItem {
    pub id: String,
    pub client_message_id: String,
    pub status: OutboxStatus,
    pub attempts: u32,
    pub enqueued_at: String,
    pub next_attempt_at: String,
    pub delivered_at: Option<String>,
    pub broker_message_id: Option<String>,
    pub last_error: Option<String>,
    pub aborted_at: Option<String>,
    pub aborted_by: Option<String>,
    pub superseded_by: Option<String>,
    /// `topic`, `dm`, `queue`, or `intent` for an intent to publish.
    #[serde(default)]
    pub destination_kind: Option<String>,
    /// The topic, the key of the member, the queue, or the goal of the intent.
    #[serde(default)]
    pub destination_ref: Option<String>,
    pub payload_bytes: u64,
    /// 64 hex digits.
    pub request_fingerprint: String,
}

/// One message of `GET /v1/inbox`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxItem {
    pub id: String,
    pub client_message_id: String,
    pub broker_message_id: Option<String>,
    pub mesh: String,
    pub topic: Option<String>,
    pub sender_pubkey: String,
    pub sender_name: String,
    /// `null` if the message could not be opened.
    pub body: Option<String>,
    /// JSON text, as it was sent.
    pub meta: Option<String>,
    pub received_at: String,
    pub reply_to_id: Option<String>,
}

/// Shows who sent it, and nothing of its content.
impl std::fmt::Debug for InboxItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxItem")
            .field("id", &self.id)
            .field("sender_pubkey", &self.sender_pubkey)
            .finish_non_exhaustive()
    }
}

/// One topic of `GET /v1/topic/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicItem {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    pub visibility: TopicVisibility,
    pub member_count: u64,
    pub created_at: String,
    pub subscribed: bool,
}

/// A list; `next` is the cursor of the page after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcItemList<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The answer to `POST /v1/outbox/requeue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequeueAnswer {
    pub aborted_row_id: String,
    pub new_row_id: String,
    pub new_client_message_id: String,
}
