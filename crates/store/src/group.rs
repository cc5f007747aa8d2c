//! Group commit: while one group of requests is synced, the next one is executed. No timer is needed.
//!
//! Invariant: a reply is sent only after the sync that covers its commit. The backend provides the transaction
//! ([`Transact`]) and the sync ([`SyncTarget`]); this module decides which requests wait and when they are answered, for
//! all backends alike. A group is committed only when the group before it is synced, so at most one commit is unsynced at
//! any time.

mod delivery;
mod durability;
mod queue;
mod request_group;
mod retry;
mod several_writers;
mod single_writer;
mod turns;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use consign_kernel::plant::{self, Plant};

use crate::failpoint::{self, Failpoint};
use crate::{Error, News};

pub(crate) use delivery::CommitListeners;
use durability::Durability;
pub(crate) use queue::{Submitter, WriteQueue, write_queue};
pub(crate) use request_group::{Arrival, RequestGroup};
pub(crate) use several_writers::GroupTurn;

use delivery::{deliver, refuse};

/// A backend that runs one transaction at a time.
pub(crate) trait Transact {
    /// Opens a transaction and executes the group in it. After an error, [`Transact::roll_back`] ends the transaction.
    fn run(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error>;
    /// Ends the transaction: it is visible to readers, and may not be synced yet.
    fn commit(&mut self) -> Result<(), Error>;
    fn roll_back(&mut self);
    /// Whether to execute the group again: it had no effect, and no request of it caused the error.
    fn should_retry(&mut self, _: &Error) -> bool {
        false
    }
    /// Whether a request of the group may have caused the error, so that the others would succeed without it. Called before
    /// the rollback.
    fn may_blame_request(&self, error: &Error) -> bool;
    /// Which requests of the group need a row that another transaction has locked, as far as this is known. Called after
    /// the rollback.
    fn find_lock_waiters(&mut self, group: &RequestGroup<'_>) -> Vec<bool> {
        vec![false; group.len()]
    }
}

/// Where commits become durable.
pub(crate) trait SyncTarget: Send + Sync {
    /// Returns when everything that was committed before the call is durable.
    fn sync(&self) -> Result<(), Error>;
}

/// The effects of an open transaction.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    pub(crate) news: News,
    /// If false, there is nothing to sync.
    pub(crate) wrote: bool,
    pub(crate) last_fact: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) commits: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) last_fact: AtomicU64,
}

/// State that the threads of a backend share.
#[derive(Default)]
pub(crate) struct CommitShared {
    pub(crate) meters: Meters,
    pub(crate) durability: Durability,
    pub(crate) listeners: CommitListeners,
}

/// A group that is committed and waits for its sync.
pub(crate) struct CommittedGroup {
    answers: delivery::PendingReplies,
    wrote: bool,
    last_fact: u64,
}

/// Executes and commits a group. If that fails, the group has no effect: requests that may succeed without the others go
/// to the retry queue, and all others are refused.
pub(crate) fn commit(
    backend: &mut impl Transact,
    mut group: RequestGroup<'_>,
    shared: &CommitShared,
) -> Option<CommittedGroup> {
    failpoint::hit(Failpoint::BeforeWrite);
    let ended = loop {
        match run_and_commit(backend, &mut group, shared) {
            Err(error) if backend.should_retry(&error) => {}
            ended => break ended,
        }
    };
    match ended {
        Ok(ran) => {
            // Only a hint: a listener reads the ledger, and its read returns when both commits are durable.
            shared.listeners.notify(&ran.news);
            Some(CommittedGroup {
                answers: group.take_answers(),
                wrote: ran.wrote,
                last_fact: ran.last_fact,
            })
        }
        Err(error) => {
            fail(backend, group, &error, shared);
            None
        }
    }
}

/// A request that fails its transaction is refused alone, and so is one that needs a row locked by another transaction.
fn fail(
    backend: &mut impl Transact,
    mut group: RequestGroup<'_>,
    error: &Error,
    shared: &CommitShared,
) {
    // With these errors the commit may have happened, or the store accepts nothing any more.
    let undone = !matches!(error, Error::Unsure(_) | Error::Lost | Error::Closed);
    let may_blame_request = undone && group.len() > 1 && backend.may_blame_request(error);
    backend.roll_back();
    if let Error::Locked(reason) = error {
        let requests = group.len();
        tracing::debug!(
            reason,
            requests,
            "another transaction holds a lock; the other requests continue"
        );
        let is_locked = if plant::on(Plant::EverybodyWaits) {
            vec![true; requests]
        } else {
            backend.find_lock_waiters(&group)
        };
        return group.defer_locked(&is_locked);
    }
    if may_blame_request && !plant::on(Plant::GroupRefused) {
        tracing::warn!(%error, requests = group.len(), "a commit failed; its requests are retried in smaller groups");
        return group.split();
    }
    shared.meters.failed.fetch_add(1, Ordering::Relaxed);
    tracing::error!(%error, requests = group.len(), "commit failed, nothing was acknowledged");
    refuse(group.take_answers(), || {
        if let Error::Unsure(reason) = error {
            return Error::Unsure(reason.clone());
        }
        if let Error::Unavailable(reason) = error {
            return Error::Unavailable(reason.clone());
        }
        if let Error::DiskFull(reason) = error {
            return Error::DiskFull(reason.clone());
        }
        Error::Unavailable(error.to_string())
    });
}

fn run_and_commit(
    backend: &mut impl Transact,
    group: &mut RequestGroup<'_>,
    shared: &CommitShared,
) -> Result<Executed, Error> {
    let ran = run_guarded(backend, group)?;
    // The sync of the previous group may have failed while this group ran.
    shared.durability.confirm()?;
    if plant::on(Plant::AnswerBeforeCommit) {
        deliver(group.take_answers());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    failpoint::hit(Failpoint::AfterWrite);
    if ran.wrote {
        shared.durability.begin_commit();
    }
    let committed = backend.commit();
    if committed.is_err() {
        shared.durability.mark_synced();
    }
    committed.map(|()| ran)
}

impl CommittedGroup {
    /// Whether the sync thread would not help: there is nothing to sync, or no other request waits.
    fn is_light(&self, waiting: usize) -> bool {
        !self.wrote || self.answers.len() + waiting == 1
    }

    /// Syncs the commit, and returns whether that succeeded. After a failed sync the disk may report success for the next
    /// one although it lost the data, so nothing is committed, answered or shown any more: only a restart reads what the
    /// disk holds.
    pub(crate) fn sync(&self, disk: &impl SyncTarget, shared: &CommitShared) -> bool {
        if !self.wrote {
            return true;
        }
        failpoint::hit(Failpoint::BeforeSync);
        let synced = disk.sync();
        match &synced {
            Ok(()) => {
                shared.meters.commits.fetch_add(1, Ordering::Relaxed);
                shared.durability.mark_synced();
            }
            Err(error) => {
                shared.meters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "the sync of a commit failed; no request is accepted until a restart");
                shared.durability.mark_lost_by(error);
            }
        }
        synced.is_ok()
    }

    /// Answers all requests of the group with the result of the sync.
    pub(crate) fn answer(self, safe: bool, shared: &CommitShared) {
        if !safe {
            return refuse(self.answers, || Error::Lost);
        }
        failpoint::hit(Failpoint::AfterSync);
        let last_fact = &shared.meters.last_fact;
        last_fact.fetch_max(self.last_fact, Ordering::Release);
        deliver(self.answers);
    }
}

/// A panic in one request must not end the writer thread: its group is rolled back and refused.
fn run_guarded(
    backend: &mut impl Transact,
    group: &mut RequestGroup<'_>,
) -> Result<Executed, Error> {
    // No state of the backend is used before the rollback of the transaction.
    let run = AssertUnwindSafe(|| backend.run(group));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        Err(Error::Unavailable(
            "a rule failed its own checks; see the log".to_owned(),
        ))
    })
}
