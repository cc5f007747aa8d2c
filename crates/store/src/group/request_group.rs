//! The requests that commit together, and what happens to them if their transaction fails.

use std::time::Instant;

use consign_kernel::command::{Reply, Request};

use super::delivery::PendingReplies;
use super::queue::{QueuedRequest, WriteQueue};
use super::retry::{GroupOrigin, LOCK_SEARCH_MAX, halves};
use crate::Error;

/// When a request was added to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Together with the request before it.
    Together,
    /// Some time may have passed since the request before it.
    Later,
}

/// Requests that commit together.
pub(crate) struct RequestGroup<'l> {
    pub(super) queue: &'l WriteQueue,
    pub(super) requests: Vec<QueuedRequest>,
    pub(super) replies: Vec<Reply>,
    pub(super) origin: GroupOrigin,
}

impl RequestGroup<'_> {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Executes every request of the group, and those that arrive while the group before it is synced.
    pub(crate) fn run_each(
        &mut self,
        mut run: impl FnMut(&Request, Arrival) -> Result<Reply, Error>,
    ) -> Result<(), Error> {
        let mut arrival = Arrival::Together;
        loop {
            while let Some(queued) = self.requests.get(self.replies.len()) {
                self.replies.push(run(&queued.request, arrival)?);
                arrival = Arrival::Together;
            }
            arrival = Arrival::Later;
            let open = self.origin == GroupOrigin::Queue;
            if !self.queue.extend_group(&mut self.requests, open) {
                return Ok(());
            }
        }
    }

    /// Whether this is a part of a group that failed: it must not wait long for locks, or it would fail slowly again.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.origin, GroupOrigin::Split { .. })
    }

    /// Moves requests that would only wait for a lock to the retry queue, and returns the rest. Requests that have waited
    /// already are attempted.
    pub(crate) fn without_locked(mut self, is_locked: impl Fn(&Request) -> bool) -> Option<Self> {
        if self.origin != GroupOrigin::LockWait {
            let requests = std::mem::take(&mut self.requests);
            let (stuck, free) = requests
                .into_iter()
                .partition(|queued| is_locked(&queued.request));
            self.requests = free;
            self.queue.wait_for_lock(stuck);
        }
        (!self.requests.is_empty()).then_some(self)
    }

    /// Retries both halves separately, so that the failing request is isolated in the end.
    pub(super) fn split(self) {
        let since = self.since();
        self.queue.retry_parts(halves(self.requests), since);
    }

    /// Another transaction holds a lock. Requests that are known to need it wait, and the others are retried. If none is
    /// known, the group is split into ever smaller parts to find them, but not for long: all requests may need the lock.
    pub(super) fn defer_locked(self, is_locked: &[bool]) {
        let since = self.since();
        let mut is_locked = is_locked.iter();
        let is_waiter = |_: &QueuedRequest| is_locked.next() == Some(&true);
        let (mut stuck, free): (Vec<_>, Vec<_>) = self.requests.into_iter().partition(is_waiter);
        if !stuck.is_empty() {
            self.queue.retry_parts([free, Vec::new()], since);
        } else if free.len() > 1 && since.elapsed() < LOCK_SEARCH_MAX {
            self.queue.retry_parts(halves(free), since);
        } else {
            stuck = free;
        }
        self.queue.wait_for_lock(stuck);
    }

    /// When the group failed that this is a part of; now, if it is not a part.
    fn since(&self) -> Instant {
        match self.origin {
            GroupOrigin::Split { since } => since,
            GroupOrigin::Queue | GroupOrigin::LockWait => Instant::now(),
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().map(|queued| &queued.request)
    }

    /// Sets the replies to all requests, in their order.
    pub(crate) fn answer_with(&mut self, replies: Vec<Reply>) {
        self.replies = replies;
    }

    /// The callers, each with its reply if there is one.
    pub(super) fn take_answers(&mut self) -> PendingReplies {
        let mut replies = self.replies.drain(..);
        self.requests
            .drain(..)
            .map(|queued| (queued.reply_to, replies.next()))
            .collect()
    }
}
