//! Priorities of messages, and which of them reach a busy peer.

use serde::{Deserialize, Serialize};

/// How urgent a message is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshPriority {
    Now,
    #[default]
    Next,
    Low,
}

impl MeshPriority {
    pub const ALL: [Self; 3] = [Self::Now, Self::Next, Self::Low];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Next => "next",
            Self::Low => "low",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// Whether a peer with this status gets the message at once. Other messages wait until the peer is idle.
    pub const fn reaches(self, status: PeerStatus) -> bool {
        match status {
            PeerStatus::Idle => true,
            PeerStatus::Working | PeerStatus::Dnd => matches!(self, Self::Now),
        }
    }
}

/// What a peer says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerStatus {
    #[default]
    Idle,
    Working,
    /// Do not disturb.
    Dnd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_peers_get_urgent_messages_only() {
        for priority in MeshPriority::ALL {
            assert!(priority.reaches(PeerStatus::Idle));
            let is_urgent = priority == MeshPriority::Now;
            assert_eq!(priority.reaches(PeerStatus::Working), is_urgent);
            assert_eq!(priority.reaches(PeerStatus::Dnd), is_urgent);
        }
    }

    #[test]
    fn priorities_are_three_words_in_lower_case() {
        for priority in MeshPriority::ALL {
            assert_eq!(MeshPriority::parse(priority.as_str()), Some(priority));
        }
        assert_eq!(MeshPriority::parse("NOW"), None);
        assert_eq!(MeshPriority::default(), MeshPriority::Next);
    }
}
