//! When the next cycle is due: at once (closed loop), or at a fixed rate (open loop).
//!
//! Invariant: with a rate, the n-th start is due n/rate after the beginning, whatever the server
//! does, and each start is handed out once. A start without a free client is handed out late with
//! its due time, so latency includes the wait (no coordinated omission).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// How often the pacing thread checks at least whether the run is over.
const NAP_MAX: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) enum StartPace {
    Closed,
    Open(StartSchedule),
}

impl StartPace {
    /// Waits for the next start and returns when it was due.
    pub(crate) async fn next(&self) -> Instant {
        match self {
            Self::Closed => Instant::now(),
            Self::Open(schedule) => schedule.next().await,
        }
    }

    /// Starts that are due at `now` and were not handed out.
    pub(crate) fn not_started(&self, now: Instant) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Open(schedule) => {
                let taken = schedule.taken.load(Ordering::Relaxed);
                schedule.due_by(now).saturating_sub(taken)
            }
        }
    }
}

/// Arrivals at a fixed rate. Tokio's timers have a resolution of milliseconds, which is too coarse
/// here, so a dedicated thread releases the starts ([`StartSchedule::release`]).
#[derive(Debug)]
pub(crate) struct StartSchedule {
    begin: Instant,
    rate: f64,
    taken: AtomicU64,
    due: Semaphore,
    over: AtomicBool,
}

impl StartSchedule {
    pub(crate) fn new(begin: Instant, rate: f64) -> Self {
        Self {
            begin,
            rate,
            taken: AtomicU64::new(0),
            due: Semaphore::new(0),
            over: AtomicBool::new(false),
        }
    }

    async fn next(&self) -> Instant {
        let permit = self.due.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        self.due_at(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    /// Releases due starts until [`StartSchedule::end`]; blocks its thread.
    pub(crate) fn release(&self) {
        let mut released = 0;
        while !self.over.load(Ordering::Relaxed) {
            let now = Instant::now();
            let due = self.due_by(now);
            if due > released {
                let more = usize::try_from(due - released).unwrap_or(usize::MAX);
                self.due.add_permits(more);
                released = due;
            }
            let nap = self.due_at(released).saturating_duration_since(now);
            thread::sleep(nap.min(NAP_MAX));
        }
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a run has fewer than 2^52 starts"
    )]
    fn due_at(&self, index: u64) -> Instant {
        self.begin + Duration::from_secs_f64(index as f64 / self.rate)
    }

    /// How many starts are due at `now`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "elapsed time and rate are positive, and a run has fewer than 2^52 starts"
    )]
    fn due_by(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.begin) {
            Some(elapsed) => (elapsed.as_secs_f64() * self.rate) as u64 + 1,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_due_at_even_distances() {
        let begin = Instant::now();
        let schedule = StartSchedule::new(begin, 1000.0);
        assert_eq!(schedule.due_by(begin), 1);
        assert_eq!(schedule.due_by(begin + Duration::from_micros(9_500)), 10);
        assert_eq!(schedule.due_at(10), begin + Duration::from_millis(10));
        let later = StartSchedule::new(begin + Duration::from_secs(1), 1000.0);
        assert_eq!(later.due_by(begin), 0);
    }

    #[tokio::test]
    async fn a_start_taken_late_is_still_dated_when_it_was_due() {
        let begin = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let schedule = StartSchedule::new(begin, 10.0);
        schedule.due.add_permits(3);
        assert_eq!(schedule.next().await, begin);
        assert_eq!(schedule.next().await, begin + Duration::from_millis(100));
        assert_eq!(schedule.next().await, begin + Duration::from_millis(200));
        let pace = StartPace::Open(schedule);
        assert_eq!(pace.not_started(begin + Duration::from_millis(950)), 7);
    }

    #[tokio::test]
    async fn the_releasing_thread_keeps_the_rate() {
        let begin = Instant::now();
        let schedule = std::sync::Arc::new(StartSchedule::new(begin, 200.0));
        let releasing = std::sync::Arc::clone(&schedule);
        let thread = thread::spawn(move || releasing.release());
        for _ in 0..10 {
            let due = schedule.next().await;
            assert!(Instant::now() >= due, "released before it was due");
        }
        assert!(begin.elapsed() >= Duration::from_millis(45));
        schedule.end();
        thread.join().unwrap();
    }
}
