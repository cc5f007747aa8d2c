//! The faults, and the defects that the campaign plants in its own settings.

use consign_testkit::campaign::findings::Promise;
use consign_testkit::campaign::plan::CampaignFault;

/// A fault of the nodes or of their database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterFault {
    /// SIGKILL of a node, which is started again later.
    KillNode,
    /// SIGKILL of every process of the primary, which is started again.
    KillPostmaster,
    /// SIGKILL of the primary; its standby takes over.
    Promote,
    /// A node is suspended past every lease.
    StopNode,
    /// The connections between nodes and database are cut, or hang.
    Cut,
    /// The primary has no space on its disk.
    FullDisk,
    /// Nodes are replaced one after the other, from an older schema to the newest.
    Upgrade,
    /// The clock of a node is set, by less than the allowed difference.
    NodeClock,
    /// As [`ClusterFault::Promote`], and the new primary has a different clock.
    PromoteClock,
    /// Other sessions lock rows, keep a snapshot, take all connections, or wait at another node.
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

    /// There are four kinds of other sessions; the other faults have two variants at most.
    fn weight(self) -> u64 {
        if self == Self::Outsiders { 2 } else { 1 }
    }
}

impl ClusterFault {
    /// Whether a client must have received an error. Nodes that are replaced in order, or suspended shortly, may go
    /// unnoticed, and so may a connection that breaks outside of a commit, because the node reconnects.
    pub(crate) fn is_felt(self) -> bool {
        self == Self::PromoteClock || self.promises().contains(&Promise::Felt)
    }
}

/// A planted defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterPlant {
    /// Commits do not wait for the standby.
    AsyncStandby,
    /// The database admits a once-key twice.
    OnceWithoutIndex,
    /// Compiled into the nodes and enabled by name.
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

    /// The name of the defect in the nodes.
    pub(crate) fn in_nodes(&self) -> Option<String> {
        match self {
            Self::InNodes(name) => Some(name.clone()),
            Self::AsyncStandby | Self::OnceWithoutIndex => None,
        }
    }
}
