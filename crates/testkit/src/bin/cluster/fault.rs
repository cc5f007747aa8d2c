//! The faults by name, and the defects that the campaign plants in its own settings.

use consign_testkit::campaign::findings::Promise;
use consign_testkit::campaign::plan::CampaignFault;

/// What happens to nodes at work, or to the database below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterFault {
    /// SIGKILL of a node, which is started again later.
    KillNode,
    /// SIGKILL of every process of the primary, which is started again.
    KillPostmaster,
    /// SIGKILL of the primary; its standby takes over.
    Promote,
    /// A node sleeps past every lease.
    StopNode,
    /// The wires between nodes and database are cut, or hang.
    Cut,
    /// The primary has no space on its disk.
    FullDisk,
    /// Nodes are replaced one after the other, from an older schema to the newest.
    Upgrade,
    /// The clock of a node is set, by less than what is allowed.
    NodeClock,
    /// As [`ClusterFault::Promote`], and the new primary has another clock than the one before.
    PromoteClock,
    /// Others lock rows, keep a snapshot, take all connections, or wait at another node.
    Outsiders,
}

impl CampaignFault for ClusterFault {
    const ALL: &'static [Self] = &[
        Self::KillNode,
        Self::KillPostmaster,
        Self::Promote,
        Self::StopNode,
        Self::Cut,
        Self::FullDisk,
        Self::Upgrade,
        Self::NodeClock,
        Self::PromoteClock,
        Self::Outsiders,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillNode => "kill-node",
            Self::KillPostmaster => "kill-postmaster",
            Self::Promote => "promote",
            Self::StopNode => "stop-node",
            Self::Cut => "cut",
            Self::FullDisk => "full-disk",
            Self::Upgrade => "upgrade",
            Self::NodeClock => "node-clock",
            Self::PromoteClock => "promote-clock",
            Self::Outsiders => "outsiders",
        }
    }

    fn promises(self) -> &'static [Promise] {
        match self {
            Self::StopNode => &[Promise::Alive, Promise::LateRefused],
            Self::Upgrade | Self::Cut => &[Promise::Alive],
            Self::KillNode | Self::KillPostmaster | Self::Promote | Self::FullDisk => {
                &[Promise::Alive, Promise::Felt]
            }
            Self::NodeClock | Self::PromoteClock => &[Promise::Alive, Promise::ClockMoved],
            Self::Outsiders => &[Promise::Alive],
        }
    }

    /// There are four kinds of outsiders, and the others take runner between two at most.
    fn weight(self) -> u64 {
        if self == Self::Outsiders { 2 } else { 1 }
    }
}

impl ClusterFault {
    /// Whether somebody must have asked in vain. Nodes that are replaced in order, or sleep shortly, may go unnoticed, and so
    /// may a wire that breaks outside of a commit: the node makes a new one and begins anew.
    pub(crate) fn is_felt(self) -> bool {
        self == Self::PromoteClock || self.promises().contains(&Promise::Felt)
    }
}

/// A defect of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterPlant {
    /// Commits do not wait for the standby.
    AsyncStandby,
    /// The database lets a once-key in twice.
    OnceWithoutIndex,
    /// Compiled into the nodes, and woken by name.
    InNodes(String),
}

impl ClusterPlant {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "async-standby" => Self::AsyncStandby,
            "once-without-index" => Self::OnceWithoutIndex,
            other => Self::InNodes(other.to_owned()),
        }
    }

    /// The name by which nodes know it.
    pub(crate) fn in_nodes(&self) -> Option<String> {
        match self {
            Self::InNodes(name) => Some(name.clone()),
            Self::AsyncStandby | Self::OnceWithoutIndex => None,
        }
    }
}
