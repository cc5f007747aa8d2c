//! Back-off after the system refused to start a process for lack of descriptors, processes or memory.
//!
//! Such a failure is not the fault of the job. The job returns to the queue without a counted attempt, and no process is started
//! for a while: longer after each failure in a row, until a start succeeds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct StartBackoff(Mutex<BackoffPause>);

#[derive(Debug, Default)]
struct BackoffPause {
    until: Option<Instant>,
    /// The length of the last pause; zero after a successful start.
    length: Duration,
}

impl StartBackoff {
    /// Records that a process could not be started. Returns the length of the pause if a new one begins, and `None` during a
    /// pause.
    pub(super) fn start_failed(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut pause = self.pause();
        if pause.until.is_some_and(|until| now < until) {
            return None;
        }
        pause.length = (pause.length * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
        pause.until = Some(now + pause.length);
        Some(pause.length)
    }

    /// Records that a process was started.
    pub(super) fn reset(&self) {
        *self.pause() = BackoffPause::default();
    }

    /// How long no process may be started.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let until = self.pause().until?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn pause(&self) -> MutexGuard<'_, BackoffPause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_nothing_starts_and_are_told_once() {
        let start_backoff = StartBackoff::default();
        assert_eq!(start_backoff.remaining(), None);
        let mut length = PAUSE_FIRST;
        for _ in 0..8 {
            assert_eq!(start_backoff.start_failed(), Some(length));
            assert_eq!(start_backoff.start_failed(), None, "the same pause");
            assert_eq!(start_backoff.remaining(), Some(length));
            tokio::time::advance(length).await;
            assert_eq!(start_backoff.remaining(), None);
            length = (length * 2).min(PAUSE_MAX);
        }
        start_backoff.reset();
        assert_eq!(start_backoff.start_failed(), Some(PAUSE_FIRST));
        start_backoff.reset();
        assert_eq!(start_backoff.remaining(), None);
    }
}
