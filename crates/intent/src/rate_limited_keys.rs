//! Keys whose rate limit of this minute is exhausted.
//!
//! The ledger counts a request in the commit that executes it, so that it is counted once and survives a restart.
//! That is after the body was read. This table remembers a refusal of the ledger, so that the bodies of further
//! requests of that key are not read until its window ends.
//!
//! Invariant: a key is refused here only while the ledger would refuse it too. An entry lives for at most one window,
//! and a purge, which ends all windows, clears the table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::ids::{Micros, SECOND_US};

/// Beyond this number, entries whose window has ended are removed.
const KEYS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct RateLimitedKeys {
    /// Whether the table has entries; most requests read only this flag.
    any: AtomicBool,
    until: Mutex<HashMap<String, Micros>>,
}

impl RateLimitedKeys {
    /// How long the ledger goes on refusing the key, if it does.
    pub(super) fn rest_us(&self, key: &str, now: Micros) -> Option<i64> {
        // Ordering: a hint. A request that misses it is refused by the ledger.
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let until = self.lock().get(key).copied();
        until.map(|until| until.0 - now.0).filter(|rest| *rest > 0)
    }

    /// Records a refusal of a request with the smallest possible cost.
    pub(super) fn record(&self, key: &str, now: Micros, retry_after_s: i64) {
        // The value was rounded up; a key that is refused too long here would lose a request.
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
        assert!(rate_limited_keys.rest_us("k", at(0)).is_none());
        rate_limited_keys.record("k", at(0), 60);
        assert!(
            rate_limited_keys.rest_us("k", at(58)) == Some(SECOND_US)
                && rate_limited_keys.rest_us("other", at(1)).is_none()
        );
        assert!(rate_limited_keys.rest_us("k", at(59)).is_none());
        rate_limited_keys.record("k", at(0), 60);
        rate_limited_keys.forget_all();
        assert!(rate_limited_keys.rest_us("k", at(1)).is_none());
    }
}
