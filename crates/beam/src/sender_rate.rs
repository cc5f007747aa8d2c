//! How many intents or messages one sender may send in a minute.
//!
//! Invariant: memory is bounded; when it is full of active senders, further ones share one window.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_mins(1);
const SENDERS_MAX: usize = 10_000;
/// The shared window of senders that do not fit into the table.
const OTHERS: &str = "";

#[derive(Debug)]
pub(crate) struct SenderRate {
    per_minute: u32,
    windows: Mutex<HashMap<String, SenderWindow>>,
}

/// The times of the last requests, oldest first.
#[derive(Debug, Default)]
struct SenderWindow(std::collections::VecDeque<Instant>);

impl SenderRate {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            windows: Mutex::default(),
        }
    }

    pub(crate) const fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Counts a request in the sliding window of its sender. False if the sender has used up its minute.
    pub(crate) fn charge(&self, sender: &str) -> bool {
        self.charge_at(sender, Instant::now())
    }

    fn charge_at(&self, sender: &str, now: Instant) -> bool {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= SENDERS_MAX && !windows.contains_key(sender) {
            windows.retain(|_, window| window.is_active(now));
        }
        let is_full = windows.len() >= SENDERS_MAX && !windows.contains_key(sender);
        let name = if is_full { OTHERS } else { sender };
        if !windows.contains_key(name) {
            windows.insert(name.to_owned(), SenderWindow::default());
        }
        let Some(window) = windows.get_mut(name) else {
            return false;
        };
        window.forget(now);
        let is_free = window.0.len() < self.per_minute as usize;
        if is_free {
            window.0.push_back(now);
        }
        is_free
    }
}

impl SenderWindow {
    fn forget(&mut self, now: Instant) {
        while self
            .0
            .front()
            .is_some_and(|at| now.duration_since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
    }

    fn is_active(&self, now: Instant) -> bool {
        self.0
            .back()
            .is_some_and(|at| now.duration_since(*at) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_minute_has_more_than_its_limit_and_none_is_refused_below_it(
            per_minute in 1_u32..4,
            requests in proptest::collection::vec((0_u8..3, 0_u64..40), 0..60),
        ) {
            let rate = SenderRate::new(per_minute);
            let start = Instant::now();
            let mut elapsed_s = 0;
            let mut accepted: Vec<(u8, u64)> = Vec::new();
            for (sender, pause_s) in requests {
                elapsed_s += pause_s;
                let now = start + Duration::from_secs(elapsed_s);
                let in_window = accepted
                    .iter()
                    .filter(|(other, at_s)| *other == sender && at_s + 60 > elapsed_s)
                    .count();
                let is_free = rate.charge_at(&sender.to_string(), now);
                prop_assert_eq!(is_free, in_window < per_minute as usize);
                if is_free {
                    accepted.push((sender, elapsed_s));
                }
            }
        }
    }

    #[test]
    fn a_sender_has_its_minute_and_others_have_theirs() {
        let rate = SenderRate::new(2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(rate.charge_at("alice", at(0)));
        assert!(rate.charge_at("alice", at(30)));
        assert!(!rate.charge_at("alice", at(59)));
        assert!(rate.charge_at("bob", at(59)));
        // The window slides: the first request no longer counts, the second one does.
        assert!(rate.charge_at("alice", at(60)));
        assert!(!rate.charge_at("alice", at(89)));
        assert!(rate.charge_at("alice", at(90)));
    }

    #[test]
    fn memory_is_bounded_whatever_names_come() {
        let rate = SenderRate::new(1);
        let now = Instant::now();
        for number in 0..SENDERS_MAX + 100 {
            rate.charge_at(&number.to_string(), now);
        }
        let windows = rate.windows.lock().expect("no test panicked");
        assert!(windows.len() <= SENDERS_MAX + 1);
    }
}
