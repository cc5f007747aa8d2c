//! Who is connected, and what peers say about themselves.

use serde::{Deserialize, Serialize};

use super::{GroupEntry, RawJson};
use crate::id::{DisplayName, GroupName, SummaryText};
use crate::priority::PeerStatus;
use crate::role::PresenceRole;

/// Asks for the connected peers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPeers {
    /// Also for the names of all members, which upstream's broker does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub members: bool,
    /// Only members with this name, or whose key begins with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// The answer to [`ListPeers`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeersList {
    pub peers: Vec<PeerEntry>,
    /// The members that are not hidden, also those that are not connected. Only if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<MemberEntry>>,
    /// There are more members than an answer has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_more: bool,
}

/// A member, connected or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberEntry {
    pub pubkey: String,
    pub display_name: String,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerEntry {
    pub pubkey: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_pubkey: Option<String>,
    pub display_name: String,
    pub status: PeerStatus,
    pub summary: Option<String>,
    #[serde(default)]
    pub groups: Vec<GroupEntry>,
    pub session_id: String,
    pub connected_at: String,
    #[serde(default)]
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_role: Option<PresenceRole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<RawJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetStatus {
    pub status: PeerStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSummary {
    pub summary: SummaryText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetVisible {
    pub visible: bool,
}

/// Free text about a peer, as upstream's clients send it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetProfile {
    /// A new name of the member, for all of its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<DisplayName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avatar: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bio: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetStats {
    pub stats: RawJson,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGroup {
    pub name: GroupName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveGroup {
    pub name: GroupName,
}
