//! Topics: what clients ask, and what the broker answers. Joining, leaving and marking as read have no answer unless they fail.

use serde::{Deserialize, Serialize};

use crate::id::{SummaryText, TopicName, TopicRef};
use crate::role::{TopicRole, TopicVisibility};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicCreate {
    pub name: TopicName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<SummaryText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<TopicVisibility>,
}

/// The answer to [`TopicCreate`]; `created` is false if the topic existed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicCreated {
    pub topic: TopicCreatedEntry,
    pub created: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicCreatedEntry {
    pub id: String,
    pub name: String,
    pub visibility: TopicVisibility,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicList {}

/// The answer to [`TopicList`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicListResponse {
    pub topics: Vec<TopicEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicEntry {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    pub visibility: TopicVisibility,
    pub member_count: u64,
    pub created_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicJoin {
    pub topic: TopicRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<TopicRole>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicLeave {
    pub topic: TopicRef,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMembers {
    pub topic: TopicRef,
}

/// The answer to [`TopicMembers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMembersResponse {
    pub topic: String,
    pub members: Vec<TopicMemberEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicMemberEntry {
    pub member_id: String,
    pub pubkey: String,
    pub display_name: String,
    pub role: TopicRole,
    pub joined_at: String,
    pub last_read_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicHistory {
    pub topic: TopicRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_id: Option<String>,
}

/// The answer to [`TopicHistory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicHistoryResponse {
    pub topic: String,
    pub messages: Vec<TopicHistoryEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicHistoryEntry {
    pub id: String,
    pub sender_pubkey: String,
    pub sender_member_id: String,
    pub sender_name: String,
    pub nonce: String,
    pub ciphertext: String,
    pub body_version: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    pub created_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMarkRead {
    pub topic: TopicRef,
}
