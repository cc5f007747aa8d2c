//! How many intents or messages one sender may send in a minute.
//!
//! Invariant: memory is bounded. When it is full of active senders, further ones share windows, by a secret hash: who fills it
//! cannot choose whose window is used up.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_mins(1);
const SENDERS_MAX: usize = 10_000;
/// The windows that senders share who do not fit into the table.
const SHARED_WINDOWS: usize = 4_096;

#[derive(Debug)]
pub(crate) struct SenderRate {
    per_minute: u32,
    windows: Mutex<SenderWindows>,
    secret: RandomState,
}

#[derive(Debug, Default)]
struct SenderWindows {
    own: HashMap<String, SenderWindow>,
    /// Empty until they are needed.
    shared: Vec<SenderWindow>,
}

/// The times of the last requests, oldest first.
#[derive(Clone, Debug, Default)]
struct SenderWindow(VecDeque<Instant>);

impl SenderRate {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            windows: Mutex::default(),
            secret: RandomState::new(),
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
        let SenderWindows { own, shared } = &mut *windows;
        if let Some(window) = own.get_mut(sender) {
            return window.charge(self.per_minute, now);
        }
        if own.len() >= SENDERS_MAX {
            own.retain(|_, window| window.is_active(now));
        }
        if own.len() < SENDERS_MAX {
            let window = own.entry(sender.to_owned()).or_default();
            return window.charge(self.per_minute, now);
        }
        shared.resize(SHARED_WINDOWS, SenderWindow::default());
        let at = self.secret.hash_one(sender) % SHARED_WINDOWS as u64;
        let window = usize::try_from(at).ok().and_then(|at| shared.get_mut(at));
        window.is_some_and(|window| window.charge(self.per_minute, now))
    }
}

impl SenderWindow {
    fn charge(&mut self, per_minute: u32, now: Instant) -> bool {
        self.forget(now);
        let is_free = self.0.len() < per_minute as usize;
        if is_free {
            self.0.push_back(now);
        }
        is_free
    }

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
        assert!(windows.own.len() <= SENDERS_MAX);
        assert!(windows.shared.len() <= SHARED_WINDOWS);
    }

    #[test]
    fn senders_beyond_the_memory_do_not_all_share_one_window() {
        let rate = SenderRate::new(1);
        let now = Instant::now();
        for number in 0..SENDERS_MAX {
            assert!(rate.charge_at(&number.to_string(), now));
        }
        let accepted = |prefix: &str| {
            let names = (0..100).map(|number| format!("{prefix}-{number}"));
            names.filter(|name| rate.charge_at(name, now)).count()
        };
        // Of two hundred senders, a few share a window of the four thousand.
        assert!(accepted("one") > 80);
        assert!(accepted("other") > 80);
        // A sender has the same window each time.
        assert_eq!(accepted("one"), 0);
        let later = now + WINDOW;
        assert!(rate.charge_at("one-0", later));
    }
}
