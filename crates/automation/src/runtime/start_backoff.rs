//! Want of what a new process takes of the system: descriptors, processes, memory.
//!
//! That a process cannot be started for such a reason is no fault of its job. The job is given back without a counted attempt, and
//! nothing is begun for a while: longer each time in a row, until a process starts again.

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
    /// Of the last one; zero after a process was started.
    length: Duration,
}

impl StartBackoff {
    /// A process could not be started. Tells how long the pause is that begins with this; nothing if one is under way.
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

    /// A process was started.
    pub(super) fn reset(&self) {
        *self.pause() = BackoffPause::default();
    }

    /// How long nothing is to be begun.
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
