//! The queue before the writers: requests are submitted one by one and taken in groups.
//!
//! The lock, the wait of the writers and the retry queue are the same for all backends. `single_writer.rs` and
//! `several_writers.rs` decide when a writer takes a group.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_kernel::command::{Command, Reply, Request};
use consign_kernel::limits;
use tokio::sync::oneshot;

use super::CommitShared;
use super::delivery::{ReplySender, refuse};
use super::request_group::RequestGroup;
use super::retry::{GroupOrigin, LOCKED_TEXT, RetryQueue};
use super::single_writer::SyncSlot;
use super::turns::{TURN_MAX, TurnSchedule};
use crate::Error;

/// Requests in one commit: more would only delay the first reply.
pub(super) const GROUP_REQUESTS_MAX: usize = 1_024;
/// The maximum weight of a group, in intents or kilobytes: large batches must not add up to a commit that takes seconds.
pub(super) const GROUP_WEIGHT_MAX: usize = 8_192;
/// Bounds of the size that a group waits for ([`QueueState::target_group_size`], [`TurnSchedule::should_start`]): a commit
/// costs as much as several requests, and in a very large group the first requests wait too long.
pub(super) const GROUP_REQUESTS_TARGET_MIN: usize = 8;
pub(super) const GROUP_REQUESTS_TARGET_MAX: usize = 128;

pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) reply_to: ReplySender,
    weight: usize,
    /// Since when the request is known to need a row locked by another transaction.
    pub(super) lock_wait_since: Option<Instant>,
}

impl QueuedRequest {
    pub(super) fn new(request: Request, reply_to: ReplySender) -> Self {
        Self {
            weight: weight(&request),
            request,
            reply_to,
            lock_wait_since: None,
        }
    }
}

/// The approximate cost of a request: one for each intent and for each kilobyte. A claim may find its maximum in each of its
/// lanes.
fn weight(request: &Request) -> usize {
    let steps = request.steps.iter().map(|step| {
        if let Command::Admit(admit) = step {
            let items = admit.items.iter();
            return items.map(|item| 1 + item.payload.len() / 1_024).sum();
        }
        if let Command::Claim(claim) = step {
            let max = claim.max.clamp(1, limits::CLAIM_BATCH_MAX) as usize;
            return (max * claim.lanes()).min(GROUP_WEIGHT_MAX);
        }
        1
    });
    steps.sum()
}

#[derive(Default)]
pub(super) struct QueueState {
    pub(super) requests: Vec<QueuedRequest>,
    /// Requests of groups that failed.
    pub(super) retries: RetryQueue,
    pub(super) closed: bool,
    pub(super) turns: TurnSchedule,
    /// Writers that wait for a notification.
    pub(super) asleep: usize,
    /// Waiting writers that were called and have not woken up yet.
    ///
    /// Invariant: at most `asleep`, and at most the number of notifications that are decided and not sent yet plus the
    /// number of writers that have left the wait and have not counted themselves out yet. So where `called` equals
    /// `asleep` and is not zero, some writer will check the state without another notification.
    pub(super) called: usize,
    /// Waiting writers with a timeout, which then check whether a group in progress is blocked.
    pub(super) timed_waiters: usize,
    pub(super) sync_slot: SyncSlot,
    /// The sizes of the last two groups.
    pub(super) recent: [usize; 2],
}

impl QueueState {
    /// Calls one writer that sleeps and is not called yet.
    pub(super) fn call_writer(&mut self) -> Wakeup {
        if self.asleep > self.called {
            self.called += 1;
            return Wakeup::One;
        }
        Wakeup::None
    }

    pub(super) fn call_all(&mut self) -> Wakeup {
        self.called = self.asleep;
        Wakeup::All
    }
}

/// The notification that follows from a change of the state: decided and counted under the lock, sent after its release
/// ([`QueueInner::release`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Wakeup {
    None,
    One,
    All,
}

#[derive(Default)]
pub(super) struct QueueInner {
    state: Mutex<QueueState>,
    pub(super) writer: Condvar,
    pub(super) syncer: Condvar,
}

impl QueueInner {
    pub(super) fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, then sends the notification: a thread that was woken under the lock would block on it at once.
    ///
    /// The notification may arrive late, when the writer it was meant for has woken up by its own timeout, has checked the state
    /// and waits again, or when another writer waits. Each writer checks the state after every wake, so a late
    /// notification costs one check and nothing else.
    pub(super) fn release(&self, state: MutexGuard<'_, QueueState>, wake: Wakeup) {
        drop(state);
        match wake {
            Wakeup::None => {}
            Wakeup::One => self.writer.notify_one(),
            Wakeup::All => self.writer.notify_all(),
        }
    }

    pub(super) fn sleep<'s>(
        &self,
        mut state: MutexGuard<'s, QueueState>,
    ) -> MutexGuard<'s, QueueState> {
        state.asleep += 1;
        let woken = self.writer.wait(state);
        Self::woken(woken.unwrap_or_else(PoisonError::into_inner))
    }

    /// As `sleep`, but for at most `pause`, and never longer than a blocked group may stay unnoticed.
    pub(super) fn wait_at_most<'s>(
        &self,
        mut state: MutexGuard<'s, QueueState>,
        pause: Duration,
    ) -> MutexGuard<'s, QueueState> {
        state.asleep += 1;
        state.timed_waiters += 1;
        let woken = self.writer.wait_timeout(state, pause.min(TURN_MAX));
        let mut state = Self::woken(woken.unwrap_or_else(PoisonError::into_inner).0);
        state.timed_waiters -= 1;
        state
    }

    /// A writer that wakes up subtracts itself, called or not. A call that arrives too late for it counts as answered,
    /// because the writer checks the state now.
    fn woken(mut state: MutexGuard<'_, QueueState>) -> MutexGuard<'_, QueueState> {
        state.asleep -= 1;
        state.called = state.called.saturating_sub(1).min(state.asleep);
        state
    }
}

/// The side of the queue that accepts requests.
pub(crate) struct Submitter {
    inner: Arc<QueueInner>,
    shared: Arc<CommitShared>,
    requests_max: usize,
}

/// The side of the queue that writers take groups from.
#[derive(Clone)]
pub(crate) struct WriteQueue {
    pub(super) inner: Arc<QueueInner>,
    pub(super) shared: Arc<CommitShared>,
}

pub(crate) fn write_queue(
    requests_max: usize,
    shared: &Arc<CommitShared>,
) -> (Submitter, WriteQueue) {
    let inner = Arc::new(QueueInner::default());
    let queue = WriteQueue {
        inner: Arc::clone(&inner),
        shared: Arc::clone(shared),
    };
    let submitter = Submitter {
        inner,
        shared: Arc::clone(shared),
        requests_max,
    };
    (submitter, queue)
}

impl Submitter {
    pub(crate) async fn execute(&self, request: Request) -> Result<Reply, Error> {
        let (reply_to, answered) = oneshot::channel();
        self.enqueue(QueuedRequest::new(request, reply_to))?;
        answered.await.map_err(|_| Error::Closed)?.take()
    }

    pub(super) fn enqueue(&self, queued: QueuedRequest) -> Result<(), Error> {
        self.shared.durability.confirm()?;
        let mut state = self.inner.state();
        if state.closed {
            return Err(Error::Closed);
        }
        if state.requests.len() + state.retries.lock_waiters() >= self.requests_max {
            self.shared.meters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Busy);
        }
        state.requests.push(queued);
        self.shared.meters.waiting.fetch_add(1, Ordering::Relaxed);
        // One writer must wait with a timeout, to notice when the group in progress is blocked.
        let needs_timed_waiter = state.requests.len() == 1 && state.timed_waiters == 0;
        let wake = if needs_timed_waiter || state.should_start() {
            state.call_writer()
        } else {
            Wakeup::None
        };
        self.inner.release(state, wake);
        Ok(())
    }

    /// Requests in the queue are still answered; later ones are refused.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state();
        state.closed = true;
        let wake = state.call_all();
        self.inner.release(state, wake);
    }
}

impl WriteQueue {
    pub(super) fn retry_parts(&self, parts: [Vec<QueuedRequest>; 2], since: Instant) {
        self.inner.state().retries.add(parts, since);
    }

    pub(super) fn wait_for_lock(&self, requests: Vec<QueuedRequest>) {
        if requests.is_empty() {
            return;
        }
        let mut state = self.inner.state();
        let closed = state.closed;
        let refused = state.retries.wait_for_lock(requests, closed);
        drop(state);
        if !refused.is_empty() {
            self.shared.meters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(requests = refused.len(), "{LOCKED_TEXT}");
            let answers = refused.into_iter().map(|queued| (queued.reply_to, None));
            refuse(answers.collect(), || {
                Error::Unavailable(LOCKED_TEXT.to_owned())
            });
        }
    }

    pub(super) fn group(
        &self,
        requests: Vec<QueuedRequest>,
        origin: GroupOrigin,
    ) -> RequestGroup<'_> {
        let replies = Vec::with_capacity(requests.len());
        RequestGroup {
            queue: self,
            requests,
            replies,
            origin,
        }
    }

    pub(super) fn take(
        &self,
        state: &mut QueueState,
        mut group: Vec<QueuedRequest>,
    ) -> Vec<QueuedRequest> {
        let mut weight: usize = group.iter().map(|queued| queued.weight).sum();
        let mut count = 0;
        for queued in state.requests.iter().take(GROUP_REQUESTS_MAX - group.len()) {
            weight += queued.weight;
            // The first request is taken whatever its weight.
            if weight > GROUP_WEIGHT_MAX && group.len() + count > 0 {
                break;
            }
            count += 1;
        }
        // A request whose caller is gone is dropped: its reply would reach no one.
        let taken = state.requests.drain(..count);
        group.extend(taken.filter(|queued| !queued.reply_to.is_closed()));
        let meters = &self.shared.meters;
        meters.waiting.fetch_sub(count as u64, Ordering::Relaxed);
        meters.requests.fetch_add(count as u64, Ordering::Relaxed);
        group
    }

    /// Runs a thread of the backend. If it panics, the queue is closed and nothing is accepted any more, so that no request
    /// waits for the thread.
    pub(crate) fn poison_on_panic(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_ok() {
            return;
        }
        tracing::error!("a thread of the ledger panicked; no request is accepted until a restart");
        self.shared.durability.mark_lost();
        let mut state = self.inner.state();
        state.closed = true;
        let unanswered = (
            std::mem::take(&mut state.requests),
            std::mem::take(&mut state.retries),
        );
        if state.sync_slot.is_busy() {
            state.sync_slot = SyncSlot::Idle;
        }
        let wake = state.call_all();
        self.inner.release(state, wake);
        drop(unanswered);
    }
}

#[cfg(test)]
pub(super) mod tests;
