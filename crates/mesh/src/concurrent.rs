//! What happens when a member connects a second time.
//!
//! Invariant: the policy of a mesh applies between daemons alone, connections without a session key that negotiated features.
//! Sessions of a member always coexist, with each other and with its daemon; and a connection with the session id of another
//! one is its continuation.

#[cfg(test)]
mod tests;

use crate::close::MeshCloseCode;
use crate::role::ClonePolicy;

/// What the policy reads of a connection of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConnection {
    /// Distinguishes connections in the answer.
    pub number: u64,
    pub session_id: Option<String>,
    pub has_session_key: bool,
    pub has_negotiated: bool,
}

/// What to do with a new connection, and with those that the member has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionDecision {
    /// The new connection is closed with this code.
    pub refused: Option<MeshCloseCode>,
    /// Connections to close, with their codes.
    pub closed: Vec<(u64, MeshCloseCode)>,
    /// Two daemons met: `member_concurrent_connection` is recorded, whatever the policy decides.
    pub is_concurrent: bool,
}

impl MemberConnection {
    const fn is_daemon(&self) -> bool {
        !self.has_session_key && self.has_negotiated
    }

    fn continues(&self, other: &Self) -> bool {
        self.session_id.is_some() && self.session_id == other.session_id
    }
}

/// What the policy reads of a daemon that is connected to one of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeConnection<'a> {
    pub session_id: Option<&'a str>,
    /// When it connected, in milliseconds, and what decides between two of the same time.
    pub since: (i64, &'a str),
}

/// Why a node closes a daemon of its own, if the same member has this one at another node.
///
/// Each node decides about its own daemons alone, and both come to the same end: of two runs one stays, and of two
/// connections of one run the later one.
pub fn decide_across_nodes(
    policy: ClonePolicy,
    own: &NodeConnection<'_>,
    other: &NodeConnection<'_>,
) -> Option<MeshCloseCode> {
    let is_older = own.since < other.since;
    let is_same_run = own.session_id.is_some() && own.session_id == other.session_id;
    match (is_same_run, policy) {
        (true, _) => is_older.then_some(MeshCloseCode::Normal),
        (false, ClonePolicy::PreferNewest) => is_older.then_some(MeshCloseCode::ReplacedByNewer),
        (false, ClonePolicy::PreferOldest) => {
            (!is_older).then_some(MeshCloseCode::MemberAlreadyConnected)
        }
        (false, ClonePolicy::AllowConcurrent) => None,
    }
}

/// Decides about a connection once it has negotiated, or about a session at its hello.
pub fn decide_connection(
    policy: ClonePolicy,
    new: &MemberConnection,
    existing: &[MemberConnection],
) -> ConnectionDecision {
    let (continued, others): (Vec<_>, Vec<_>) = existing
        .iter()
        .filter(|one| one.number != new.number)
        .partition(|one| new.continues(one));
    let daemons: Vec<u64> = others
        .iter()
        .filter(|one| new.is_daemon() && one.is_daemon())
        .map(|one| one.number)
        .collect();
    let mut decision = ConnectionDecision {
        refused: None,
        closed: Vec::new(),
        is_concurrent: !daemons.is_empty(),
    };
    if decision.is_concurrent && policy == ClonePolicy::PreferOldest {
        decision.refused = Some(MeshCloseCode::MemberAlreadyConnected);
        return decision;
    }
    let replaced = continued
        .iter()
        .map(|one| (one.number, MeshCloseCode::Normal));
    decision.closed.extend(replaced);
    if policy == ClonePolicy::PreferNewest {
        let older = daemons
            .iter()
            .map(|number| (*number, MeshCloseCode::ReplacedByNewer));
        decision.closed.extend(older);
    }
    decision
}
