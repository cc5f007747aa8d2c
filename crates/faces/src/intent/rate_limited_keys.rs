//! Keys whose allowance of this minute is known to be used up.
//!
//! The ledger counts requests, in the commit that carries them out, so that a request is counted once and survives a restart.
//! That is after its body was read. What the ledger said when it refused a key is remembered here, so that the bodies of
//! further requests of that key are not read until its window is over.
//!
//! Invariant: a key is refused here only while the ledger would refuse it too. It is remembered for at most a window, and
//! forgotten by a purge, which ends all windows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::ids::{Micros, SECOND_US};

/// Beyond this the keys whose window is over are forgotten.
const KEYS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct RateLimitedKeys {
    /// Whether any key is here; the only thing that most requests look at.
    any: AtomicBool,
    until: Mutex<HashMap<String, Micros>>,
}

impl RateLimitedKeys {
    pub(super) fn is_limited(&self, key: &str, now: Micros) -> bool {
        // Ordering: a hint. Whoever misses it is refused by the ledger.
        self.any.load(Ordering::Relaxed) && self.lock().get(key).is_some_and(|until| *until > now)
    }

    /// Remembers a refusal of the smallest possible request.
    pub(super) fn record(&self, key: &str, now: Micros, retry_after_s: i64) {
        // It was rounded up, and who is refused here too long would lose a request.
        let until = now.plus((retry_after_s - 1).max(0) * SECOND_US);
        let mut keys = self.lock();
        if keys.len() >= KEYS_MAX {
            keys.retain(|_, until| *until > now);
        }
        if keys.len() < KEYS_MAX || keys.contains_key(key) {
            keys.insert(key.to_owned(), until);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn forget_all(&self) {
        self.lock().clear();
        self.any.store(false, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Micros>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_a_key_is_spent_for_the_rest_of_its_window_and_no_longer() {
        let rate_limited_keys = RateLimitedKeys::default();
        let at = |seconds: i64| Micros(seconds * SECOND_US);
        assert!(!rate_limited_keys.is_limited("k", at(0)));
        rate_limited_keys.record("k", at(0), 60);
        assert!(
            rate_limited_keys.is_limited("k", at(58))
                && !rate_limited_keys.is_limited("other", at(1))
        );
        assert!(!rate_limited_keys.is_limited("k", at(59)));
        rate_limited_keys.record("k", at(0), 60);
        rate_limited_keys.forget_all();
        assert!(!rate_limited_keys.is_limited("k", at(1)));
    }
}
