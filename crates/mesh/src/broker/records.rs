//! The records of the broker: their values and their keys. Times are milliseconds of the wall clock.

use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use crate::frame::GroupEntry;
use crate::id::{QueueName, TopicName};
use crate::keys::MeshPublicKey;
use crate::limits::DEDUPE_DAYS_DEFAULT;
use crate::role::{ClonePolicy, MemberRole, PeerGrants, TopicRole, TopicVisibility};

/// A mesh and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshRecord {
    pub id: String,
    pub slug: String,
    pub name: String,
    pub owner_pubkey: MeshPublicKey,
    /// Encrypted with the seal key.
    pub(crate) owner_secret: String,
    /// Encrypted with the seal key.
    pub(crate) root_key: String,
    pub clone_policy: ClonePolicy,
    pub dedupe: DedupeRetention,
    /// How long accepted messages are kept.
    pub message_days: u32,
    pub created_at: i64,
}

/// How long a broker remembers the id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupeRetention {
    Days(u32),
    Permanent,
}

impl Default for DedupeRetention {
    fn default() -> Self {
        Self::Days(DEDUPE_DAYS_DEFAULT)
    }
}

impl MeshRecord {
    pub(super) fn key(id: &str) -> Key {
        named(Kind::Mesh, "", id)
    }

    /// Holds the id of the mesh with this slug.
    pub(super) fn slug_key(slug: &str) -> Key {
        named(Kind::MeshSlug, "", slug)
    }
}

/// A member of a mesh. Its id never belongs to another member, and its key may be rotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshMember {
    pub id: String,
    pub mesh_id: String,
    pub pubkey: MeshPublicKey,
    pub display_name: String,
    pub role: MemberRole,
    pub joined_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Keys that the member has rotated out, oldest first. Messages to them still reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<MeshPublicKey>,
    /// What the member calls its present key, if it has had another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The groups in which the member also is while it is not connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupEntry>,
    /// What the member lets others do.
    #[serde(default)]
    pub grants: PeerGrants,
    /// Others do not see it in lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
    /// The machine from which the member's daemon connected last, as that daemon hashed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_host_fingerprint: Option<String>,
    /// When the daemon last connected from another machine than before, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_suspected_at: Option<i64>,
}

impl MeshMember {
    pub(super) fn key(mesh_id: &str, id: &str) -> Key {
        named(Kind::MeshMember, mesh_id, id)
    }

    /// Whether the member may take part.
    pub const fn is_active(&self) -> bool {
        self.revoked_at.is_none()
    }

    /// The present key and the former ones.
    pub(super) fn keys(&self) -> impl Iterator<Item = MeshPublicKey> + '_ {
        std::iter::once(self.pubkey).chain(self.former_keys.iter().copied())
    }

    pub(super) fn has_key(&self, key: MeshPublicKey) -> bool {
        self.keys().any(|own| own == key)
    }

    /// Holds the id of the member with this key.
    pub(super) fn pubkey_key(mesh_id: &str, pubkey: MeshPublicKey) -> Key {
        named(Kind::MeshMemberKey, mesh_id, &pubkey.to_string())
    }
}

/// An invite, under the digest of its token. It expires with the invite's validity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InviteRecord {
    pub(super) mesh_id: String,
    pub(super) role: MemberRole,
    /// Seconds since 1970.
    pub(super) expires_at_s: u64,
    pub(super) uses_max: u32,
    pub(super) uses: u32,
    pub(super) is_revoked: bool,
}

impl InviteRecord {
    pub(super) fn key(mesh_id: &str, digest: &str) -> Key {
        named(Kind::MeshInvite, mesh_id, digest)
    }
}

/// Is written in each commit that changes the members of a mesh. Its version is what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RosterRecord {}

impl RosterRecord {
    pub(super) fn key(mesh_id: &str) -> Key {
        named(Kind::MeshRoster, "", mesh_id)
    }
}

/// A topic and its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    pub id: String,
    pub mesh_id: String,
    pub name: TopicName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub visibility: TopicVisibility,
    pub created_at: i64,
    /// The member that created it; `None` for a topic of the broker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// In the order in which they joined.
    pub members: Vec<TopicMemberRecord>,
    /// The queues that each post also goes to, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<TopicQueue>,
}

/// A queue that a topic fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicQueue {
    pub queue: QueueName,
    /// It follows from the configuration of an automation, and ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_automation: bool,
}

/// A member of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMemberRecord {
    pub member_id: String,
    pub role: TopicRole,
    pub joined_at: i64,
}

impl TopicRecord {
    pub(super) fn key(mesh_id: &str, id: &str) -> Key {
        named(Kind::MeshTopic, mesh_id, id)
    }

    /// Holds the id of the topic with this name.
    pub(super) fn name_key(mesh_id: &str, name: &str) -> Key {
        named(Kind::MeshTopicName, mesh_id, name)
    }

    /// Holds the time at which a member read the topic last.
    pub(super) fn read_key(id: &str, member_id: &str) -> Key {
        named(Kind::MeshTopicRead, id, member_id)
    }

    pub(super) fn role_of(&self, member_id: &str) -> Option<TopicRole> {
        let mut members = self.members.iter();
        members
            .find(|member| member.member_id == member_id)
            .map(|member| member.role)
    }
}

fn named(kind: Kind, owner: &str, name: &str) -> Key {
    Key {
        kind,
        owner: owner.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_was_stored_without_subscriptions_has_none_and_reads_the_same() {
        let stored = r#"{"id":"t","mesh_id":"m","name":"alerts","visibility":"public","created_at":1,"members":[]}"#;
        let topic: TopicRecord = serde_json::from_str(stored).unwrap();
        assert_eq!(topic.subscriptions, []);
        assert_eq!(serde_json::to_string(&topic).unwrap(), stored);
    }
}
