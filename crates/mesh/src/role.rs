//! Roles and rights: of members in a mesh and in topics, of API keys, of hooks, and what a recipient grants a sender.
//!
//! Invariant: a right that no rule gives is refused.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::id::TopicName;
use crate::keys::MeshPublicKey;

/// Declares words of the protocol: the variants of an enum and their texts.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident => $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

pub(crate) use words;

words! {
    /// The role of a member in its mesh.
    MemberRole {
        Admin => "admin",
        Member => "member",
    }

    /// The role of a member in a topic.
    TopicRole {
        Lead => "lead",
        Member => "member",
        /// Reads, and does not post.
        Observer => "observer",
    }

    /// Who may find a topic.
    TopicVisibility {
        Public => "public",
        Private => "private",
        Dm => "dm",
    }

    /// What a connection is to others.
    PresenceRole {
        /// A client without a session of its own; not listed by name.
        ControlPlane => "control-plane",
        Session => "session",
        /// A daemon that negotiated features.
        Service => "service",
    }

    /// What an API key may do.
    ApiCapability {
        Send => "send",
        Read => "read",
        StateWrite => "state_write",
        Admin => "admin",
    }

    /// What a member lets another one do.
    PeerGrant {
        Read => "read",
        Dm => "dm",
        Broadcast => "broadcast",
        StateRead => "state-read",
    }

    /// Parts of the daemon's interface that are off unless the settings enable them.
    DaemonCapability {
        State => "state",
        Memory => "memory",
        Vector => "vector",
        Graph => "graph",
        Tasks => "tasks",
        Scheduling => "scheduling",
        McpHost => "mcp_host",
        SkillShare => "skill_share",
        InboxFts => "inbox_fts",
    }

    /// Whether a broker forgets the ids of messages after a while.
    DedupeMode {
        RetentionScoped => "retention_scoped",
        Permanent => "permanent",
    }

    /// What a broker does when a member connects twice.
    ClonePolicy {
        PreferNewest => "prefer_newest",
        PreferOldest => "prefer_oldest",
        AllowConcurrent => "allow_concurrent",
    }
}

/// Whether a member of a topic may post there. `None` is a sender that has not joined.
pub const fn may_post(role: Option<TopicRole>) -> bool {
    matches!(role, Some(TopicRole::Lead | TopicRole::Member))
}

/// What a member grants to others, by their member key. Senders that are not listed have [`PeerGrants::DEFAULT`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerGrants(pub BTreeMap<MeshPublicKey, Vec<PeerGrant>>);

/// What a grant decides about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    Yes,
    /// The sender of a direct message gets an error.
    Refused,
    /// A group's message does not reach this recipient, and the sender does not learn it.
    Dropped,
}

impl PeerGrants {
    pub const DEFAULT: &[PeerGrant] = &[
        PeerGrant::Read,
        PeerGrant::Dm,
        PeerGrant::Broadcast,
        PeerGrant::StateRead,
    ];

    /// `sender` are the keys of one member, present and former: a new key does not end a block.
    pub fn allows(
        &self,
        sender: impl IntoIterator<Item = MeshPublicKey>,
        grant: PeerGrant,
    ) -> bool {
        let mut listed = sender.into_iter().filter_map(|key| self.0.get(&key));
        let listed = listed.next().map(Vec::as_slice);
        listed.unwrap_or(Self::DEFAULT).contains(&grant)
    }

    /// Whether a message of this sender to this destination reaches the member.
    pub fn delivered(
        &self,
        sender: impl IntoIterator<Item = MeshPublicKey>,
        destination: &Destination,
    ) -> Delivered {
        let (grant, otherwise) = match destination {
            Destination::Member(_) => (PeerGrant::Dm, Delivered::Refused),
            Destination::Topic(_)
            | Destination::Group(_)
            | Destination::Everyone
            | Destination::Queue(_) => (PeerGrant::Broadcast, Delivered::Dropped),
        };
        if self.allows(sender, grant) {
            Delivered::Yes
        } else {
            otherwise
        }
    }
}

/// The rights of an API key: capabilities, and topics if it is limited to some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiScope {
    pub capabilities: Vec<ApiCapability>,
    /// `None` is every topic.
    pub topics: Option<Vec<TopicName>>,
}

impl ApiScope {
    /// Whether the key has a capability; `admin` has all.
    pub fn has(&self, capability: ApiCapability) -> bool {
        let of = |wanted| self.capabilities.contains(&wanted);
        of(capability) || of(ApiCapability::Admin)
    }

    /// Whether the key may send there. A key with topics sends to those alone.
    pub fn may_send(&self, destination: &Destination) -> bool {
        let sends = self.capabilities.contains(&ApiCapability::Send)
            || self.capabilities.contains(&ApiCapability::Admin);
        let in_scope = match (&self.topics, destination) {
            (None, _) => true,
            (Some(topics), Destination::Topic(name)) => topics.contains(name),
            (Some(_), _) => false,
        };
        sends && in_scope
    }
}

/// What a hook may do with its token. There are no others, and none that reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookScope {
    /// Answers the event that started the hook.
    ReplyToEvent,
    /// Sends to the member whose message started the hook.
    SendTo(MeshPublicKey),
    /// Posts to one topic.
    PostTo(TopicName),
}

impl HookScope {
    pub fn parse(text: &str) -> Option<Self> {
        if text == "reply:event" {
            return Some(Self::ReplyToEvent);
        }
        if let Some(key) = text.strip_prefix("dm:send:") {
            return MeshPublicKey::parse(key).ok().map(Self::SendTo);
        }
        let topic = text.strip_prefix("topic:")?.strip_suffix(":post")?;
        TopicName::parse(topic).ok().map(Self::PostTo)
    }

    /// Whether the scope covers a message to this destination, sent for an event from `sender`.
    pub fn covers(&self, destination: &Destination, sender: Option<MeshPublicKey>) -> bool {
        match (self, destination) {
            (Self::ReplyToEvent, Destination::Member(to)) => sender == Some(*to),
            (Self::SendTo(key), Destination::Member(to)) => key == to,
            (Self::PostTo(name), Destination::Topic(topic)) => name == topic,
            _ => false,
        }
    }
}
