//! `to` of a request, and the member or topic that it means.

use std::fmt;

use crate::destination::{Destination, EVERYONE};
use crate::id::{DisplayName, GroupName, QueueName, TopicName};
use crate::keys::MeshPublicKey;
use crate::limits::KEY_PREFIX_DIGITS_MIN;

/// What a caller wrote, sorted by its form and not yet looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    Topic(TopicName),
    Key(MeshPublicKey),
    /// The beginning of a key, in lower case.
    KeyPrefix(String),
    Name(DisplayName),
    Group(GroupName),
    Everyone,
    Queue(QueueName),
}

/// A member that a daemon knows, with the keys of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPeer {
    pub member: MeshPublicKey,
    pub name: Option<String>,
    pub sessions: Vec<MeshPublicKey>,
}

/// Why a recipient has no destination. Neither case consumes an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("destination_not_found")]
    NotFound,
    #[error("destination_ambiguous")]
    Ambiguous,
}

impl Recipient {
    /// `None` if the text has none of the forms.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == EVERYONE {
            return Some(Self::Everyone);
        }
        if let Some(topic) = text.strip_prefix('#') {
            return TopicName::parse(topic).ok().map(Self::Topic);
        }
        if let Some(group) = text.strip_prefix('@') {
            return GroupName::parse(group).ok().map(Self::Group);
        }
        if let Some(queue) = text.strip_prefix("queue:") {
            return QueueName::parse(queue).ok().map(Self::Queue);
        }
        if let Ok(key) = MeshPublicKey::parse(text) {
            return Some(Self::Key(key));
        }
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex && (KEY_PREFIX_DIGITS_MIN..64).contains(&text.len()) {
            return Some(Self::KeyPrefix(text.to_ascii_lowercase()));
        }
        DisplayName::parse(text).ok().map(Self::Name)
    }

    /// Whether the destination follows from the text alone, without a list of peers.
    pub const fn needs_peers(&self) -> bool {
        matches!(self, Self::KeyPrefix(_) | Self::Name(_))
    }

    /// The destination. A key that is no known member's stands for itself: the
    /// broker knows whether it exists.
    pub fn resolve(self, peers: &[KnownPeer]) -> Result<Destination, ResolveError> {
        let found = match self {
            Self::Topic(name) => return Ok(Destination::Topic(name)),
            Self::Group(name) => return Ok(Destination::Group(name)),
            Self::Everyone => return Ok(Destination::Everyone),
            Self::Queue(name) => return Ok(Destination::Queue(name)),
            Self::Key(key) => {
                let owner = peers.iter().find(|peer| peer.has_key(|one| *one == key));
                return Ok(Destination::Member(owner.map_or(key, |peer| peer.member)));
            }
            Self::KeyPrefix(prefix) => {
                let matches = |key: &MeshPublicKey| key.to_string().starts_with(&prefix);
                members(peers, |peer| peer.has_key(matches))
            }
            Self::Name(name) => {
                let wanted = name.as_str().to_lowercase();
                let is_named = |name: &String| name.to_lowercase() == wanted;
                members(peers, |peer| peer.name.as_ref().is_some_and(is_named))
            }
        };
        match found[..] {
            [] => Err(ResolveError::NotFound),
            [member] => Ok(Destination::Member(member)),
            _ => Err(ResolveError::Ambiguous),
        }
    }
}

/// The form that [`Recipient::parse`] reads.
impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "#{name}"),
            Self::Key(key) => write!(f, "{key}"),
            Self::KeyPrefix(prefix) => f.write_str(prefix),
            Self::Name(name) => write!(f, "{name}"),
            Self::Group(name) => write!(f, "@{name}"),
            Self::Everyone => f.write_str(EVERYONE),
            Self::Queue(name) => write!(f, "queue:{name}"),
        }
    }
}

impl KnownPeer {
    fn has_key(&self, matches: impl Fn(&MeshPublicKey) -> bool) -> bool {
        matches(&self.member) || self.sessions.iter().any(matches)
    }
}

/// Each member once, however many of its rows match.
fn members(peers: &[KnownPeer], matches: impl Fn(&KnownPeer) -> bool) -> Vec<MeshPublicKey> {
    let mut found: Vec<MeshPublicKey> = peers
        .iter()
        .filter(|peer| matches(peer))
        .map(|peer| peer.member)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
