//! Requests that are carried out apart from the others: parts of a group that failed, and those that wait for a lock.
//!
//! Invariant: whoever fails is alone in the end. One poisonous request refuses only itself, and what somebody keeps locked
//! holds up only those who need it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::line::Job;

/// How long whoever needs a lock is looked for, in parts of its group.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(1);
/// How long a request waits for somebody else's lock, all in all.
const STUCK_TIME: Duration = Duration::from_secs(5);
/// Between two tries for those who wait. A try takes a moment of one writer.
const STUCK_PAUSE: Duration = Duration::from_millis(200);

pub(super) const LOCKED: &str = "another transaction keeps locked what the request needs; try again, or look in \
    pg_stat_activity for one that is open for long, and end it";

/// Where the requests of a group come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whence {
    /// They waited for their turn.
    Line,
    /// A larger group failed, then.
    Part { since: Instant },
    /// They waited for a lock.
    Stuck,
}

struct Part {
    jobs: Vec<Job>,
    since: Instant,
}

#[derive(Default)]
pub(super) struct Apart {
    parts: VecDeque<Part>,
    /// They need what somebody else keeps locked.
    stuck: Vec<Job>,
    /// When these were tried, or put here.
    tried: Option<Instant>,
    /// A writer tries them. Never two: the others shall have one for themselves.
    trying: bool,
}

impl Apart {
    /// Before all others, in their order.
    pub(super) fn add(&mut self, parts: [Vec<Job>; 2], since: Instant) {
        let parts = parts.into_iter().filter(|jobs| !jobs.is_empty());
        for jobs in parts.rev() {
            self.parts.push_front(Part { jobs, since });
        }
    }

    pub(super) fn next_part(&mut self) -> Option<(Vec<Job>, Instant)> {
        self.parts.pop_front().map(|part| (part.jobs, part.since))
    }

    /// Keeps those who need what is locked, and gives back those who have waited long enough.
    #[must_use]
    pub(super) fn put_aside(&mut self, jobs: Vec<Job>, closed: bool) -> Vec<Job> {
        let now = Instant::now();
        if self.stuck.is_empty() {
            self.tried = Some(now);
        }
        let over = |job: &mut Job| {
            let since = *job.stuck_since.get_or_insert(now);
            closed || now.duration_since(since) >= STUCK_TIME
        };
        let mut refused = Vec::new();
        for mut job in jobs {
            if over(&mut job) {
                refused.push(job);
            } else {
                self.stuck.push(job);
            }
        }
        refused
    }

    /// How many wait for a lock.
    pub(super) fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// Those who wait for a lock, when it is time to try.
    pub(super) fn next_stuck(&mut self, max: usize, closed: bool) -> Option<Vec<Job>> {
        if self.stuck.is_empty() || self.trying || !(closed || self.pause()?.is_zero()) {
            return None;
        }
        let count = self.stuck.len().min(max);
        let taken = self.stuck.drain(..count);
        // Nobody waits any more for one whose caller went away.
        let jobs: Vec<_> = taken.filter(|job| !job.asker.is_closed()).collect();
        self.trying = !jobs.is_empty();
        self.trying.then_some(jobs)
    }

    /// Ends a try.
    pub(super) fn tried(&mut self) {
        self.trying = false;
        self.tried = Some(Instant::now());
    }

    /// How long until the next try, if there is something to try and nobody does.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.stuck.is_empty() || self.trying {
            return None;
        }
        let tried = self.tried?;
        Some(STUCK_PAUSE.saturating_sub(tried.elapsed()))
    }

    /// Whether a writer that has nothing else to do must stay. One that tries already sees to the rest.
    pub(super) fn needs_somebody(&self) -> bool {
        !self.stuck.is_empty() && !self.trying
    }
}

pub(super) fn halves(mut jobs: Vec<Job>) -> [Vec<Job>; 2] {
    let second = jobs.split_off(jobs.len() / 2);
    [jobs, second]
}

#[cfg(test)]
mod tests {
    use consign_kernel::command::{OnRefusal, Request};
    use tokio::sync::oneshot::{self, Receiver};

    use super::*;
    use crate::group::delivery::Delivery;

    fn job() -> (Job, Receiver<Delivery>) {
        let (asker, answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            on_refusal: OnRefusal::Continue,
            seed: [0; 32],
        };
        (Job::new(request, asker), answered)
    }

    fn before_now(time: Duration) -> Option<Instant> {
        Instant::now().checked_sub(time)
    }

    #[test]
    fn one_writer_at_a_time_tries_for_those_who_wait() {
        let mut apart = Apart::default();
        let ((first, _first), (second, _second)) = (job(), job());
        assert!(apart.put_aside(vec![first], false).is_empty());
        apart.tried = before_now(STUCK_PAUSE);
        let tried = apart.next_stuck(10, false).map(|jobs| jobs.len());
        assert_eq!(tried, Some(1));
        assert!(apart.put_aside(vec![second], false).is_empty());
        apart.tried = before_now(STUCK_PAUSE);
        assert!(apart.next_stuck(10, false).is_none(), "others are free");
        assert!(apart.next_stuck(10, true).is_none(), "at the end too");
        assert_eq!(apart.pause(), None, "and wait for nothing");
        apart.tried();
        assert!(apart.pause().is_some_and(|pause| !pause.is_zero()));
        apart.tried = before_now(STUCK_PAUSE);
        let tried = apart.next_stuck(10, false).map(|jobs| jobs.len());
        assert_eq!(tried, Some(1));
    }

    #[test]
    fn who_has_waited_long_enough_is_given_back() {
        let mut apart = Apart::default();
        let ((mut late, _late), (soon, _soon)) = (job(), job());
        late.stuck_since = before_now(STUCK_TIME);
        let over = apart.put_aside(vec![soon, late], false);
        assert_eq!((over.len(), apart.stuck()), (1, 1));
        let (closing, _closing) = job();
        assert_eq!(apart.put_aside(vec![closing], true).len(), 1);
    }

    #[test]
    fn nobody_tries_for_one_who_went_away() {
        let mut apart = Apart::default();
        let (gone, asking) = job();
        assert!(apart.put_aside(vec![gone], false).is_empty());
        drop(asking);
        assert!(apart.next_stuck(10, true).is_none());
        assert!(!apart.needs_somebody());
    }
}
