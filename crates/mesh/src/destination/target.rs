//! `targetSpec` of a frame, and whether it agrees with the destination that was hashed.

use std::fmt;

use crate::destination::{Destination, EVERYONE};
use crate::id::{GroupName, QueueName, TopicName};
use crate::keys::MeshPublicKey;
use crate::limits::OPAQUE_ID_BYTES_MAX;

/// What a `send` names as its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// A member's key or a session's.
    Key(MeshPublicKey),
    Group(GroupName),
    /// The id of a topic or its name.
    Topic(String),
    Everyone,
    Queue(QueueName),
}

/// A target that the broker looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedTarget {
    /// The member that a key belongs to, or whose session it is.
    Member(MeshPublicKey),
    Topic(TopicName),
    Group(GroupName),
    Everyone,
    Queue(QueueName),
}

impl TargetSpec {
    /// `None` if the text has none of the forms.
    pub fn parse(text: &str) -> Option<Self> {
        if text == EVERYONE {
            return Some(Self::Everyone);
        }
        if let Some(group) = text.strip_prefix('@') {
            return GroupName::parse(group).ok().map(Self::Group);
        }
        if let Some(topic) = text.strip_prefix('#') {
            let is_valid = (1..=OPAQUE_ID_BYTES_MAX * 2).contains(&topic.len())
                && !topic.chars().any(|c| c.is_control() || c.is_whitespace());
            return is_valid.then(|| Self::Topic(topic.to_owned()));
        }
        if let Some(queue) = text.strip_prefix("queue:") {
            return QueueName::parse(queue).ok().map(Self::Queue);
        }
        MeshPublicKey::parse(text).ok().map(Self::Key)
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{key}"),
            Self::Group(name) => write!(f, "@{name}"),
            Self::Topic(topic) => write!(f, "#{topic}"),
            Self::Everyone => f.write_str(EVERYONE),
            Self::Queue(name) => write!(f, "queue:{name}"),
        }
    }
}

impl Destination {
    /// What the frame names. Topics are named, not numbered: the broker accepts both.
    pub fn target(&self) -> TargetSpec {
        match self {
            Self::Topic(name) => TargetSpec::Topic(name.to_string()),
            Self::Member(key) => TargetSpec::Key(*key),
            Self::Group(name) => TargetSpec::Group(name.clone()),
            Self::Everyone => TargetSpec::Everyone,
            Self::Queue(name) => TargetSpec::Queue(name.clone()),
        }
    }
}

impl ResolvedTarget {
    /// The destination that must have been hashed for this target.
    pub fn destination(&self) -> Destination {
        match self {
            Self::Member(key) => Destination::Member(*key),
            Self::Topic(name) => Destination::Topic(name.clone()),
            Self::Group(name) => Destination::Group(name.clone()),
            Self::Everyone => Destination::Everyone,
            Self::Queue(name) => Destination::Queue(name.clone()),
        }
    }

    /// Whether a message for this target may claim that destination.
    pub fn agrees_with(&self, claimed: &Destination) -> bool {
        self.destination() == *claimed
    }
}
