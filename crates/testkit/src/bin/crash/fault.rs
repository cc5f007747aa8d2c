//! The faults, and the points at which a server can kill itself.

use consign_testkit::campaign::findings::Promise;
use consign_testkit::campaign::plan::CampaignFault;

/// A fault of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashFault {
    /// SIGKILL at a random moment.
    Kill,
    /// It kills itself at a named point.
    Failpoint,
    /// SIGKILL, and each write that was not synced is lost, torn or kept.
    Power,
    /// No space on the disk for a while.
    Full,
    /// Syncs or writes fail with EIO for a while; then the power is cut too.
    Eio,
    /// The server, or some of its workers, are suspended past the end of their leases.
    Stop,
}

impl CampaignFault for CrashFault {
    const ALL: &'static [Self] = &[
        Self::Kill,
        Self::Failpoint,
        Self::Power,
        Self::Full,
        Self::Eio,
        Self::Stop,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Failpoint => "failpoint",
            Self::Power => "power",
            Self::Full => "full",
            Self::Eio => "eio",
            Self::Stop => "stop",
        }
    }

    fn promises(self) -> &'static [Promise] {
        match self {
            Self::Kill | Self::Power => &[Promise::HealthyAnswers],
            Self::Failpoint => &[Promise::HealthyAnswers, Promise::BackupWhole],
            Self::Full => &[Promise::TroubleAnswered, Promise::Heals],
            Self::Eio => &[
                Promise::TroubleAnswered,
                Promise::Heals,
                Promise::EndsAfterLostSync,
            ],
            Self::Stop => &[Promise::HealthyAnswers, Promise::LateRefused],
        }
    }
}

impl CrashFault {
    /// The machine loses power with the server, so that only synced data counts.
    pub(crate) fn loses_power(self) -> bool {
        matches!(self, Self::Power | Self::Eio)
    }

    /// The disk fails on purpose, so that errors are expected.
    pub(crate) fn hurts_the_disk(self) -> bool {
        matches!(self, Self::Full | Self::Eio)
    }
}

/// Where a process ends in a round with [`CrashFault::Failpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailPoint {
    BeforeWrite,
    AfterWrite,
    BeforeSync,
    AfterSync,
    /// Inside SQLite, so the shim kills the process.
    Checkpoint,
    Migration,
    Backup,
}

impl FailPoint {
    /// The most informative points come first, because a short campaign does not reach the end.
    const ALL: [Self; 7] = [
        Self::Backup,
        Self::AfterWrite,
        Self::BeforeSync,
        Self::Checkpoint,
        Self::Migration,
        Self::AfterSync,
        Self::BeforeWrite,
    ];

    /// The points take turns, from round 1 on.
    pub(crate) fn of_round(round: u64) -> Self {
        let count = Self::ALL.len() as u64;
        Self::ALL[usize::try_from((round - 1) % count).unwrap_or(0)]
    }

    /// The name of the failpoint in the store, for points that a running server passes.
    pub(crate) fn in_server(self) -> Option<&'static str> {
        match self {
            Self::BeforeWrite => Some("before-write"),
            Self::AfterWrite => Some("after-write"),
            Self::BeforeSync => Some("before-sync"),
            Self::AfterSync => Some("after-sync"),
            Self::Checkpoint | Self::Migration | Self::Backup => None,
        }
    }
}
