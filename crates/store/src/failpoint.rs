//! Points at which a process can be made to end as if it was killed, so that tests can interrupt it at any step.
//!
//! Invariant: without the feature `planted`, which no shipped binary has, [`hit`] does nothing and compiles to nothing.

/// A point in the code of the store, or of a site above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    BeforeWrite,
    AfterWrite,
    /// Committed and visible to readers, and not synced yet.
    BeforeSync,
    /// Synced, and not answered yet.
    AfterSync,
    DuringMigration,
    DuringBackup,
    /// A batch of a copy is committed.
    DuringCopy,
    /// An execution is allowed, and not committed.
    BeforeExecution,
    /// An execution is committed, and its rail is not called yet.
    BeforeRail,
    /// The rail has created a payment, and its id is not stored.
    AfterPrepare,
    /// The rail has paid, and the ledger has not recorded it.
    AfterCharge,
    /// A transaction is settled, and its request is not answered.
    BeforeAnswer,
    /// The rail has refunded, and the ledger has not recorded it.
    AfterRefund,
    /// Received messages are written to the inbox, and not committed.
    BeforeInboxCommit,
    /// Received messages are in the inbox, and not acknowledged.
    AfterInboxCommit,
}

#[cfg(not(feature = "planted"))]
pub const fn hit(_: Failpoint) {}

#[cfg(feature = "planted")]
pub use armed::{arm, hit};

#[cfg(feature = "planted")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Failpoint;

    static ARMED: OnceLock<(Failpoint, AtomicU64)> = OnceLock::new();

    /// Ends the process at the nth pass of a point, given as `name:nth`. Returns whether the text is valid.
    pub fn arm(text: &str) -> bool {
        let Some((name, nth)) = text.split_once(':') else {
            return false;
        };
        let point = match name {
            "before-write" => Failpoint::BeforeWrite,
            "after-write" => Failpoint::AfterWrite,
            "before-sync" => Failpoint::BeforeSync,
            "after-sync" => Failpoint::AfterSync,
            "during-migration" => Failpoint::DuringMigration,
            "during-backup" => Failpoint::DuringBackup,
            "during-copy" => Failpoint::DuringCopy,
            "before-execution" => Failpoint::BeforeExecution,
            "before-rail" => Failpoint::BeforeRail,
            "after-prepare" => Failpoint::AfterPrepare,
            "after-charge" => Failpoint::AfterCharge,
            "before-answer" => Failpoint::BeforeAnswer,
            "after-refund" => Failpoint::AfterRefund,
            "before-inbox-commit" => Failpoint::BeforeInboxCommit,
            "after-inbox-commit" => Failpoint::AfterInboxCommit,
            _ => return false,
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0);
        nth.is_some_and(|nth: u64| ARMED.set((point, AtomicU64::new(nth))).is_ok())
    }

    pub fn hit(point: Failpoint) {
        if let Some((armed, left)) = ARMED.get()
            && *armed == point
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            // No cleanup, as with a kill.
            std::process::abort();
        }
    }
}
