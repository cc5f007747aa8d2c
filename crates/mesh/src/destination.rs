//! Where a message goes: what callers write, what is hashed, and what the frame names.
//!
//! Invariant: a [`Destination`] contains no name that can change its owner: a member is named by its key. Names are resolved
//! before the fingerprint is computed, so a retry after a rename is still the same request.

mod recipient;
mod target;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use recipient::{KnownPeer, Recipient, ResolveError};
pub use target::{ResolvedTarget, TargetSpec};

use crate::id::{GroupName, QueueName, TopicName};
use crate::keys::MeshPublicKey;

/// The text for all members of a mesh.
pub const EVERYONE: &str = "*";

/// What kind of thing a message is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DestinationKind {
    Topic,
    Dm,
    Queue,
}

impl DestinationKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Dm => "dm",
            Self::Queue => "queue",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Topic, Self::Dm, Self::Queue];
        all.into_iter().find(|one| one.as_str() == text)
    }
}

/// The destination that is hashed and stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    Topic(TopicName),
    /// A member, by its Ed25519 key.
    Member(MeshPublicKey),
    /// The members of a group.
    Group(GroupName),
    Everyone,
    /// A named queue, whose messages wait for workers.
    Queue(QueueName),
}

/// A pair of kind and reference that names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("destination_ref is not valid for destination_kind {}", .0.as_str())]
pub struct InvalidDestination(pub DestinationKind);

impl Destination {
    /// Reads the pair that frames and records carry.
    pub fn from_parts(kind: DestinationKind, reference: &str) -> Result<Self, InvalidDestination> {
        let invalid = InvalidDestination(kind);
        match kind {
            DestinationKind::Topic => TopicName::parse(reference)
                .map(Self::Topic)
                .map_err(|_| invalid),
            DestinationKind::Dm => {
                // Only the form in lower case is hashed, so no other is a reference.
                let key = MeshPublicKey::parse(reference).ok();
                let key = key.filter(|key| key.to_string() == reference);
                key.map(Self::Member).ok_or(invalid)
            }
            DestinationKind::Queue if reference == EVERYONE => Ok(Self::Everyone),
            DestinationKind::Queue => match reference.strip_prefix('@') {
                Some(group) => GroupName::parse(group)
                    .map(Self::Group)
                    .map_err(|_| invalid),
                None => QueueName::parse(reference)
                    .map(Self::Queue)
                    .map_err(|_| invalid),
            },
        }
    }

    pub const fn kind(&self) -> DestinationKind {
        match self {
            Self::Topic(_) => DestinationKind::Topic,
            Self::Member(_) => DestinationKind::Dm,
            Self::Group(_) | Self::Everyone | Self::Queue(_) => DestinationKind::Queue,
        }
    }

    /// The text that is hashed: topic name, key, `@group`, `*` or queue id.
    pub fn reference(&self) -> String {
        match self {
            Self::Topic(name) => name.to_string(),
            Self::Member(key) => key.to_string(),
            Self::Group(name) => format!("@{name}"),
            Self::Everyone => EVERYONE.to_owned(),
            Self::Queue(name) => name.to_string(),
        }
    }

    /// Whether bodies travel in clear, so that the broker can check their hash. Topics with a key are sealed.
    pub const fn is_clear(&self, body_version: u8) -> bool {
        match self {
            Self::Topic(_) => body_version == 1,
            Self::Group(_) | Self::Everyone => true,
            Self::Member(_) | Self::Queue(_) => false,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().as_str(), self.reference())
    }
}
