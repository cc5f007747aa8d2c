//! The schedule of a backend with several writers: each takes a group in its turn (`turns.rs`) and waits for its
//! own commit.

use super::queue::{GROUP_REQUESTS_MAX, QueueState, Wakeup, WriteQueue};
use super::request_group::RequestGroup;
use super::retry::GroupOrigin;

/// The turn of a writer that executes and commits a group; ends when dropped.
pub(crate) struct GroupTurn<'l> {
    queue: &'l WriteQueue,
    /// `None` while the writer attempts requests that wait for a lock. Other groups never wait for it.
    number: Option<usize>,
}

impl Drop for GroupTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.inner.state();
        match self.number {
            // Queued requests are taken by this writer, which gathers again now, or by one that waits with a timeout.
            Some(number) => state.turns.end(number),
            None => state.retries.end_attempt(),
        }
    }
}

impl QueueState {
    pub(super) fn should_start(&self) -> bool {
        self.turns.should_start(self.requests.len())
    }

    /// Calls a writer if requests are left in the queue.
    fn call_for_rest(&mut self) -> Wakeup {
        if self.requests.is_empty() {
            return Wakeup::None;
        }
        self.call_writer()
    }
}

impl WriteQueue {
    /// As `gather`, for one of several writers in its turn (`TurnSchedule::should_start`).
    pub(crate) fn gather_in_turn(&self) -> Option<(RequestGroup<'_>, GroupTurn<'_>)> {
        let mut state = self.inner.state();
        loop {
            if let Some(taken) = self.take_retry(&mut state) {
                // This writer may have been called for the queued requests, and has a retry to do first.
                let wake = state.call_for_rest();
                self.inner.release(state, wake);
                return Some(taken);
            }
            if state.requests.is_empty() {
                if state.closed && !state.retries.needs_writer() {
                    return None;
                }
                let pauses = [state.retries.pause(), state.turns.pause()];
                state = match pauses.into_iter().flatten().min() {
                    Some(pause) => self.inner.wait_at_most(state, pause),
                    None => self.inner.sleep(state),
                };
            } else if state.should_start() {
                let requests = self.take(&mut state, Vec::new());
                if !requests.is_empty() {
                    let turn = self.turn(&mut state, requests.len());
                    // The queue holds more than one group: call another writer.
                    let wake = state.call_for_rest();
                    self.inner.release(state, wake);
                    return Some((self.group(requests, GroupOrigin::Queue), turn));
                }
            } else if let Some(pause) = state.turns.pause() {
                state = self.inner.wait_at_most(state, pause);
            }
        }
    }

    /// Requests of failed groups go first.
    fn take_retry(&self, state: &mut QueueState) -> Option<(RequestGroup<'_>, GroupTurn<'_>)> {
        if let Some((requests, since)) = state.retries.next_part() {
            let turn = self.turn(state, requests.len());
            return Some((self.group(requests, GroupOrigin::Split { since }), turn));
        }
        let requests = state
            .retries
            .next_lock_waiters(GROUP_REQUESTS_MAX, state.closed)?;
        let turn = GroupTurn {
            queue: self,
            number: None,
        };
        Some((self.group(requests, GroupOrigin::LockWait), turn))
    }

    fn turn(&self, state: &mut QueueState, size: usize) -> GroupTurn<'_> {
        GroupTurn {
            queue: self,
            number: Some(state.turns.take(size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::super::CommitShared;
    use super::super::queue::tests::empty_request;
    use super::super::queue::write_queue;
    use super::super::turns::TURN_MAX;

    #[test]
    fn a_waiting_writer_is_called_for_the_first_request_behind_a_group_in_progress() {
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = write_queue(8, &shared);
        let (taken, was_taken) = std::sync::mpsc::channel();
        let writer = queue.clone();
        let writer = std::thread::spawn(move || {
            let group = writer.gather_in_turn().map(|(group, _)| group.len());
            taken.send((group, Instant::now())).unwrap();
        });
        while queue.inner.state().asleep == 0 {
            std::thread::yield_now();
        }
        // Another writer takes a large group, and is blocked.
        queue.inner.state().turns.take(40);
        let began = Instant::now();
        let (queued, _answered) = empty_request();
        submitter.enqueue(queued).unwrap();
        let (group, at) = was_taken.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(group, Some(1));
        assert!(
            at - began >= TURN_MAX / 2,
            "it waited for the other group first"
        );
        writer.join().unwrap();
    }

    #[test]
    fn every_request_is_taken_however_many_threads_submit_and_gather() {
        const EACH: usize = 2_000;
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = write_queue(usize::MAX, &shared);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some((group, _running)) = queue.gather_in_turn() {
                        taken.fetch_add(group.len(), Ordering::Relaxed);
                    }
                });
            }
            let submitters = [(); 2].map(|()| {
                scope.spawn(|| {
                    let requests = (0..EACH).map(|_| {
                        let (queued, answered) = empty_request();
                        submitter.enqueue(queued).unwrap();
                        answered
                    });
                    requests.collect::<Vec<_>>()
                })
            });
            let answers = submitters.map(|submitter| submitter.join().unwrap());
            let deadline = Instant::now() + Duration::from_secs(10);
            while taken.load(Ordering::Relaxed) < 2 * EACH && Instant::now() < deadline {
                std::thread::yield_now();
            }
            drop(answers);
            submitter.close();
        });
        assert_eq!(taken.into_inner(), 2 * EACH);
    }
}
