//! Group commit: while one group of requests is made safe, the next one is carried out. No timer is needed.
//!
//! Invariant: an answer leaves only after the sync that covers its commit. The backend brings the transaction
//! ([`Transact`]) and the disk ([`SyncTarget`]); who waits, who is answered and when is decided here, alike for all of them.
//! A group is committed only when the one before it is safe, so at most one commit is unsafe at any time.

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

/// One transaction at a time of a backend.
pub(crate) trait Transact {
    /// Opens a transaction and carries out the group in it. An error leaves it to [`Transact::roll_back`].
    fn run(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error>;
    /// Ends the transaction: readers see it, and it may not be safe yet.
    fn commit(&mut self) -> Result<(), Error>;
    fn roll_back(&mut self);
    /// Whether the group shall be carried out once more: nothing came of it, and it was nobody's fault.
    fn should_retry(&mut self, _: &Error) -> bool {
        false
    }
    /// Whether a request of the group may be to blame, so that others would pass without it. Asked before the roll-back.
    fn may_blame_request(&self, error: &Error) -> bool;
    /// Which requests of the group need what somebody else keeps locked, as far as it can be told. Asked after the
    /// roll-back.
    fn find_lock_waiters(&mut self, group: &RequestGroup<'_>) -> Vec<bool> {
        vec![false; group.len()]
    }
}

/// Where commits become safe.
pub(crate) trait SyncTarget: Send + Sync {
    /// Returns when everything that was committed before the call is safe.
    fn sync(&self) -> Result<(), Error>;
}

/// What an open transaction did.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    pub(crate) news: News,
    /// Else there is nothing to make safe.
    pub(crate) wrote: bool,
    pub(crate) last_fact: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) commits: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) last_fact: AtomicU64,
}

/// What both threads of a backend share.
#[derive(Default)]
pub(crate) struct CommitShared {
    pub(crate) meters: Meters,
    pub(crate) durability: Durability,
    pub(crate) listeners: CommitListeners,
}

/// A group that is committed and waits to be safe.
pub(crate) struct CommittedGroup {
    answers: delivery::PendingReplies,
    wrote: bool,
    last_fact: u64,
}

/// Carries out and commits a group. When that fails nothing is left of it: who may pass without the others goes back into
/// the line, to be carried out apart, and everybody else is refused.
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
            // Only a hint: whoever hears it asks the ledger, and is answered when both commits are safe.
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

/// One poisonous request refuses only itself, and so does one that needs what somebody else keeps locked.
fn fail(
    backend: &mut impl Transact,
    mut group: RequestGroup<'_>,
    error: &Error,
    shared: &CommitShared,
) {
    // Else it may have happened, or nothing will happen any more.
    let undone = !matches!(error, Error::Unsure(_) | Error::Lost | Error::Closed);
    let may_blame_request = undone && group.len() > 1 && backend.may_blame_request(error);
    backend.roll_back();
    if let Error::Locked(reason) = error {
        let requests = group.len();
        tracing::debug!(reason, requests, "somebody else holds a lock; others go on");
        let is_locked = if plant::on(Plant::EverybodyWaits) {
            vec![true; requests]
        } else {
            backend.find_lock_waiters(&group)
        };
        return group.defer_locked(&is_locked);
    }
    if may_blame_request && !plant::on(Plant::GroupRefused) {
        tracing::warn!(%error, requests = group.len(), "a commit failed; its requests are tried in smaller groups");
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
        Error::Unavailable(error.to_string())
    });
}

fn run_and_commit(
    backend: &mut impl Transact,
    group: &mut RequestGroup<'_>,
    shared: &CommitShared,
) -> Result<Executed, Error> {
    let ran = run_guarded(backend, group)?;
    failpoint::hit(Failpoint::AfterWrite);
    // The group before this one may have been lost while this one ran.
    shared.durability.confirm()?;
    if plant::on(Plant::AnswerBeforeCommit) {
        deliver(group.take_answers());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
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
    /// Whether the other thread would be no help: there is nothing to sync, or nobody else waits.
    fn is_light(&self, waiting: usize) -> bool {
        !self.wrote || self.answers.len() + waiting == 1
    }

    /// Makes it safe, and says whether that worked. A disk that failed to do so may claim the opposite the next time
    /// although it lost what it was given, so then nothing is committed, answered or shown any more: only a new start
    /// reads what is really there.
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
                tracing::error!(%error, "a commit was not made safe; nothing more is accepted until a new start");
                shared.durability.mark_lost_by(error);
            }
        }
        synced.is_ok()
    }

    /// PendingReplies everybody, now that it is known what became of the commit.
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

/// A mistake of ours in one request must not end the only thread that writes: its group is rolled back and refused.
fn run_guarded(
    backend: &mut impl Transact,
    group: &mut RequestGroup<'_>,
) -> Result<Executed, Error> {
    // Nothing of the backend is relied upon before the commit, and the transaction is rolled back.
    let run = AssertUnwindSafe(|| backend.run(group));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        Err(Error::Unavailable(
            "a rule failed its own checks; the log tells where".to_owned(),
        ))
    })
}
