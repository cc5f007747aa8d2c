//! Requests that are carried out apart from the others: parts of a group that failed, and those that wait for a lock.
//!
//! Invariant: whoever fails is alone in the end. One poisonous request refuses only itself, and what somebody keeps locked
//! holds up only those who need it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::queue::QueuedRequest;

/// How long whoever needs a lock is looked for, in parts of its group.
pub(super) const LOCK_SEARCH_MAX: Duration = Duration::from_secs(1);
/// How long a request waits for somebody else's lock, all in all.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries for those who wait. A try takes a moment of one writer.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(super) const LOCKED_TEXT: &str = "another transaction keeps locked what the request needs; try again, or look in \
    pg_stat_activity for one that is open for long, and end it";

/// Where the requests of a group come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupOrigin {
    /// They waited for their turn.
    Queue,
    /// A larger group failed, then.
    Split { since: Instant },
    /// They waited for a lock.
    LockWait,
}

struct RetryPart {
    requests: Vec<QueuedRequest>,
    since: Instant,
}

#[derive(Default)]
pub(super) struct RetryQueue {
    parts: VecDeque<RetryPart>,
    /// They need what somebody else keeps locked.
    lock_waiters: Vec<QueuedRequest>,
    /// When these were tried, or put here.
    attempted_at: Option<Instant>,
    /// A writer tries them. Never two: the others shall have one for themselves.
    attempting: bool,
}

impl RetryQueue {
    /// Before all others, in their order.
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

    /// Keeps those who need what is locked, and gives back those who have waited long enough.
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

    /// How many wait for a lock.
    pub(super) fn lock_waiters(&self) -> usize {
        self.lock_waiters.len()
    }

    /// Those who wait for a lock, when it is time to try.
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
        // Nobody waits any more for one whose caller went away.
        let requests: Vec<_> = taken
            .filter(|queued| !queued.reply_to.is_closed())
            .collect();
        self.attempting = !requests.is_empty();
        self.attempting.then_some(requests)
    }

    /// Ends a try.
    pub(super) fn end_attempt(&mut self) {
        self.attempting = false;
        self.attempted_at = Some(Instant::now());
    }

    /// How long until the next try, if there is something to try and nobody does.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.lock_waiters.is_empty() || self.attempting {
            return None;
        }
        let tried = self.attempted_at?;
        Some(LOCK_RETRY_PAUSE.saturating_sub(tried.elapsed()))
    }

    /// Whether a writer that has nothing else to do must stay. One that tries already sees to the rest.
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
    use consign_kernel::command::{Apart, Request};
    use tokio::sync::oneshot::{self, Receiver};

    use super::*;
    use crate::group::delivery::Delivery;

    fn queued() -> (QueuedRequest, Receiver<Delivery>) {
        let (reply_to, answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            apart: Apart::Yes,
            seed: [0; 32],
        };
        (QueuedRequest::new(request, reply_to), answered)
    }

    fn before_now(time: Duration) -> Option<Instant> {
        Instant::now().checked_sub(time)
    }

    #[test]
    fn one_writer_at_a_time_tries_for_those_who_wait() {
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
            "others are free"
        );
        assert!(
            retries.next_lock_waiters(10, true).is_none(),
            "at the end too"
        );
        assert_eq!(retries.pause(), None, "and wait for nothing");
        retries.end_attempt();
        assert!(retries.pause().is_some_and(|pause| !pause.is_zero()));
        retries.attempted_at = before_now(LOCK_RETRY_PAUSE);
        let tried = retries
            .next_lock_waiters(10, false)
            .map(|requests| requests.len());
        assert_eq!(tried, Some(1));
    }

    #[test]
    fn who_has_waited_long_enough_is_given_back() {
        let mut retries = RetryQueue::default();
        let ((mut late, _late), (soon, _soon)) = (queued(), queued());
        late.lock_wait_since = before_now(LOCK_WAIT_MAX);
        let over = retries.wait_for_lock(vec![soon, late], false);
        assert_eq!((over.len(), retries.lock_waiters()), (1, 1));
        let (closing, _closing) = queued();
        assert_eq!(retries.wait_for_lock(vec![closing], true).len(), 1);
    }

    #[test]
    fn nobody_tries_for_one_who_went_away() {
        let mut retries = RetryQueue::default();
        let (gone, asking) = queued();
        assert!(retries.wait_for_lock(vec![gone], false).is_empty());
        drop(asking);
        assert!(retries.next_lock_waiters(10, true).is_none());
        assert!(!retries.needs_writer());
    }
}
