//! Which connections a message reaches, and when a written push counts as acknowledged.
//!
//! Invariant: a post to a topic, a group or all members reaches no session of its sender; a direct message skips the sending
//! connection alone.

#[cfg(test)]
mod tests;

use crate::destination::Destination;
use crate::id::{GroupName, TopicName};
use crate::keys::MeshPublicKey;

/// What the broker knows about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshConnection {
    pub member: MeshPublicKey,
    /// `None` for a daemon or another connection of the member itself.
    pub session: Option<MeshPublicKey>,
    pub groups: Vec<GroupName>,
    pub topics: Vec<TopicName>,
    /// It negotiated features, so it acknowledges.
    pub has_negotiated: bool,
    /// It sent an acknowledgement before.
    pub has_acked: bool,
}

/// A message on its way to connections.
#[derive(Debug, Clone, Copy)]
pub struct AddressedMessage<'a> {
    /// The member that sent it.
    pub sender: MeshPublicKey,
    pub destination: &'a Destination,
    /// The key of the frame for a direct message: a session's key reaches that session alone.
    pub target: Option<MeshPublicKey>,
}

impl MeshConnection {
    /// Whether the message reaches this connection; `is_sending` if it came from here.
    pub fn receives(&self, message: &AddressedMessage<'_>, is_sending: bool) -> bool {
        let is_own = self.member == message.sender;
        match message.destination {
            Destination::Member(member) => {
                let is_named = match message.target {
                    Some(key) if key != *member => self.session == Some(key),
                    _ => self.member == *member,
                };
                is_named && !is_sending
            }
            Destination::Topic(name) => !is_own && self.topics.contains(name),
            Destination::Group(name) => !is_own && self.is_in(name),
            Destination::Everyone => !is_own,
            // Workers fetch from named queues.
            Destination::Queue(_) => false,
        }
    }

    fn is_in(&self, group: &GroupName) -> bool {
        group.as_str() == GroupName::ALL || self.groups.iter().any(|own| own.is_within(group))
    }

    /// Whether a push that was written needs no acknowledgement, because the client never sends one. A direct message for
    /// the member itself always does: a session that passes by must not take the mail of its daemon.
    pub fn is_acked_on_write(&self, message: &AddressedMessage<'_>) -> bool {
        let is_legacy = self.session.is_some() && !self.has_negotiated && !self.has_acked;
        let is_for_this = match message.destination {
            Destination::Member(_) => self.session.is_some() && message.target == self.session,
            Destination::Topic(_) | Destination::Group(_) | Destination::Everyone => true,
            Destination::Queue(_) => false,
        };
        is_legacy && is_for_this
    }
}
