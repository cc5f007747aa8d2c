//! How a connection introduces itself, and how a member replaces its key.

use serde::{Deserialize, Serialize};

use super::RawJson;

/// A member, or one of its sessions if `session_pubkey` is there. Keys and signatures are texts here: [`crate::hello`]
/// checks them in the order of the protocol, which has an error for each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloFrame {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<RawJson>,
    pub mesh_id: String,
    pub member_id: String,
    pub pubkey: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_pubkey: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupEntry>>,
    /// The machine of a daemon, as in its `host_fingerprint.json`: 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_fingerprint: Option<String>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    pub signature: String,
}

/// A session that its member attested.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionHello {
    pub mesh_id: String,
    pub parent_member_id: String,
    pub parent_member_pubkey: String,
    pub session_pubkey: String,
    pub parent_attestation: SessionAttestation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupEntry>>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    pub signature: String,
}

/// The member's signature for the key of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAttestation {
    pub session_pubkey: String,
    pub parent_member_pubkey: String,
    /// Milliseconds since 1970.
    pub expires_at: u64,
    pub signature: String,
}

/// A group of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// The connection is accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloAck {
    pub presence_id: String,
    pub member_display_name: String,
    pub member_profile: MemberProfile,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_policy: Option<RawJson>,
    /// The connection continues an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_groups: Option<Vec<GroupEntry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_stats: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_version: Option<String>,
}

/// What the broker stores about a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberProfile {
    pub role_tag: Option<String>,
    #[serde(default)]
    pub groups: Vec<GroupEntry>,
    /// `push`, `inbox` or `off`.
    pub message_mode: Option<String>,
}

/// A member replaces its key; the old key and the new one sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotationFrame {
    pub new_pubkey: String,
    pub new_x25519_pubkey: String,
    pub key_id: String,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    pub signature_old: String,
    pub signature_new: String,
}
