//! Requests that are executed apart from the queue: parts of a group that failed, and requests that wait for a lock.
//!
//! Invariant: a failing request is isolated in the end. It is refused alone, and a lock of another transaction delays only
//! the requests that need it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::queue::QueuedRequest;

/// How long the requests that need a lock are searched by splitting their group.
pub(super) const LOCK_SEARCH_MAX: Duration = Duration::from_secs(1);
/// How long a request waits for the lock of another transaction in total.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts of the waiting requests. An attempt occupies one writer for a moment.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(super) const LOCKED_TEXT: &str = "another transaction keeps locked what the request needs; try again, or look in \
    pg_stat_activity for one that is open for long, and end it";

/// Where the requests of a group come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupOrigin {
    /// From the write queue.
    Queue,
    /// From a larger group that failed at this time.
    Split { since: Instant },
    /// From the requests that wait for a lock.
    LockWait,
}

struct RetryPart {
    requests: Vec<QueuedRequest>,
    since: Instant,
}

#[derive(Default)]
pub(super) struct RetryQueue {
    parts: VecDeque<RetryPart>,
    /// Requests that need a row locked by another transaction.
    lock_waiters: Vec<QueuedRequest>,
    /// When the waiting requests were last attempted, or added.
    attempted_at: Option<Instant>,
    /// A writer attempts them. Never two at once, so that a writer is left for the other requests.
    attempting: bool,
}

impl RetryQueue {
    /// Adds parts before all others, in their order.
    pub(super) fn add(&mut self, parts: [Vec<QueuedRequest>; 2], since: Instant) {
        let parts = parts.into_iter().filter(|requests| !requests.is_empty());
        for requests in parts.rev() {
            self.parts.push_front(RetryPart { requests, since });
        }
    }

    pub(super) fn next_part(&mut self) -> Option<(Vec<QueuedRequest>, Instant)> {
        self.parts
            .pop_front()
            .map(|part| (part.requests, part.since))
    }

    /// Adds requests that need a lock, and returns those that have waited too long.
    #[must_use]
    pub(super) fn wait_for_lock(
        &mut self,
        requests: Vec<QueuedRequest>,
        closed: bool,
    ) -> Vec<QueuedRequest> {
        let now = Instant::now();
        if self.lock_waiters.is_empty() {
            self.attempted_at = Some(now);
        }
        let over = |queued: &mut QueuedRequest| {
            let since = *queued.lock_wait_since.get_or_insert(now);
            closed || now.duration_since(since) >= LOCK_WAIT_MAX
        };
        let mut refused = Vec::new();
        for mut queued in requests {
            if over(&mut queued) {
                refused.push(queued);
            } else {
                self.lock_waiters.push(queued);
            }
        }
        refused
    }

    /// How many requests wait for a lock.
    pub(super) fn lock_waiters(&self) -> usize {
        self.lock_waiters.len()
    }

    /// The requests that wait for a lock, when the next attempt is due.
    pub(super) fn next_lock_waiters(
        &mut self,
        max: usize,
        closed: bool,
    ) -> Option<Vec<QueuedRequest>> {
        if self.lock_waiters.is_empty() || self.attempting || !(closed || self.pause()?.is_zero()) {
            return None;
        }
        let count = self.lock_waiters.len().min(max);
        let taken = self.lock_waiters.drain(..count);
        // A request whose caller is gone needs no reply.
        let requests: Vec<_> = taken
            .filter(|queued| !queued.reply_to.is_closed())
            .collect();
        self.attempting = !requests.is_empty();
        self.attempting.then_some(requests)
    }

    /// Ends an attempt.
    pub(super) fn end_attempt(&mut self) {
        self.attempting = false;
        self.attempted_at = Some(Instant::now());
    }

    /// How long until the next attempt, if requests wait and no writer attempts them.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.lock_waiters.is_empty() || self.attempting {
            return None;
        }
        let tried = self.attempted_at?;
        Some(LOCK_RETRY_PAUSE.saturating_sub(tried.elapsed()))
    }

    /// Whether an idle writer must stay for the waiting requests. A writer that attempts them already handles the rest.
    pub(super) fn needs_writer(&self) -> bool {
        !self.lock_waiters.is_empty() && !self.attempting
    }
}

pub(super) fn halves(mut requests: Vec<QueuedRequest>) -> [Vec<QueuedRequest>; 2] {
    let second = requests.split_off(requests.len() / 2);
    [requests, second]
}

#[cfg(test)]
mod tests {
    use consign_kernel::command::{OnRefusal, Request};
    use tokio::sync::oneshot::{self, Receiver};

    use super::*;
    use crate::group::delivery::ReplyBatch;

    fn queued() -> (QueuedRequest, Receiver<ReplyBatch>) {
        let (reply_to, answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            on_refusal: OnRefusal::Continue,
            seed: [0; 32],
        };
        (QueuedRequest::new(request, reply_to), answered)
    }

    fn before_now(time: Duration) -> Option<Instant> {
        Instant::now().checked_sub(time)
    }

    #[test]
    fn one_writer_at_a_time_attempts_the_waiting_requests() {
        let mut retries = RetryQueue::default();
        let ((first, _first), (second, _second)) = (queued(), queued());
        assert!(retries.wait_for_lock(vec![first], false).is_empty());
        retries.attempted_at = before_now(LOCK_RETRY_PAUSE);
        let tried = retries
            .next_lock_waiters(10, false)
            .map(|requests| requests.len());
        assert_eq!(tried, Some(1));
        assert!(retries.wait_for_lock(vec![second], false).is_empty());
        retries.attempted_at = before_now(LOCK_RETRY_PAUSE);
        assert!(
            retries.next_lock_waiters(10, false).is_none(),
            "an attempt is in progress"
        );
        assert!(
            retries.next_lock_waiters(10, true).is_none(),
            "also while closing"
        );
        assert_eq!(retries.pause(), None, "no pause applies");
        retries.end_attempt();
        assert!(retries.pause().is_some_and(|pause| !pause.is_zero()));
        retries.attempted_at = before_now(LOCK_RETRY_PAUSE);
        let tried = retries
            .next_lock_waiters(10, false)
            .map(|requests| requests.len());
        assert_eq!(tried, Some(1));
    }

    #[test]
    fn a_request_that_has_waited_too_long_is_returned() {
        let mut retries = RetryQueue::default();
        let ((mut late, _late), (soon, _soon)) = (queued(), queued());
        late.lock_wait_since = before_now(LOCK_WAIT_MAX);
        let over = retries.wait_for_lock(vec![soon, late], false);
        assert_eq!((over.len(), retries.lock_waiters()), (1, 1));
        let (closing, _closing) = queued();
        assert_eq!(retries.wait_for_lock(vec![closing], true).len(), 1);
    }

    #[test]
    fn a_request_whose_caller_is_gone_is_not_attempted() {
        let mut retries = RetryQueue::default();
        let (gone, asking) = queued();
        assert!(retries.wait_for_lock(vec![gone], false).is_empty());
        drop(asking);
        assert!(retries.next_lock_waiters(10, true).is_none());
        assert!(!retries.needs_writer());
    }
}
