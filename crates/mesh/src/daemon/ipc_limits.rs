//! What local programs may use of the daemon at once: requests, event streams, requests per second.
//!
//! Invariant: what was taken is given back when the request or the stream ends, however it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::outbox::QueuePressure;

/// A number of places.
#[derive(Debug, Clone, Default)]
pub(super) struct IpcPlaces(Arc<AtomicUsize>);

/// One taken place; dropping it frees it.
#[derive(Debug)]
pub(super) struct IpcPlace(Arc<AtomicUsize>);

impl IpcPlaces {
    /// A place, if fewer than `max` are taken.
    pub(super) fn take(&self, max: usize) -> Option<IpcPlace> {
        let taken = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < max).then_some(taken + 1)
            });
        taken.is_ok().then(|| IpcPlace(Arc::clone(&self.0)))
    }
}

impl Drop for IpcPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Callers whose buckets are remembered.
const BUCKETS_MAX: usize = 64;

/// Requests per second and caller, with a burst.
#[derive(Debug, Default)]
pub(super) struct IpcRates(Mutex<HashMap<String, RateBucket>>);

#[derive(Debug, Clone, Copy)]
struct RateBucket {
    left: f64,
    at: Instant,
}

impl IpcRates {
    /// Whether the caller may make a request now.
    pub(super) fn admits(&self, caller: &str, per_second: u32, burst: u32, now: Instant) -> bool {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let burst = f64::from(burst);
        if !buckets.contains_key(caller) && buckets.len() >= BUCKETS_MAX {
            // A full bucket is the same as none.
            let rate = f64::from(per_second);
            buckets.retain(|_, bucket| bucket.filled(rate, burst, now) < burst);
            if buckets.len() >= BUCKETS_MAX {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(caller.to_owned()).or_insert(RateBucket {
            left: burst,
            at: now,
        });
        bucket.left = bucket.filled(f64::from(per_second), burst, now);
        bucket.at = now;
        if bucket.left < 1.0 {
            return false;
        }
        bucket.left -= 1.0;
        true
    }
}

impl RateBucket {
    fn filled(&self, per_second: f64, burst: f64, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + passed * per_second).min(burst)
    }
}

/// Which refusals have a line in the log: a hostile program must not fill the disk with them.
#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<RefusalWindow>);

#[derive(Debug, Default)]
struct RefusalWindow {
    began: Option<Instant>,
    written: u32,
    counted: u64,
}

/// What the log gets of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalLine {
    Written,
    /// Only counted, the first since the last report. Its caller reports the count after [`RefusalLog::WINDOW`].
    FirstCounted,
    Counted,
}

impl RefusalLog {
    pub(super) const WINDOW: Duration = Duration::from_secs(1);
    /// Lines in a window.
    const LINES_MAX: u32 = 10;

    pub(super) fn admit(&self, now: Instant) -> RefusalLine {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = window
            .began
            .is_none_or(|began| now.saturating_duration_since(began) >= Self::WINDOW);
        if is_over {
            window.began = Some(now);
            window.written = 0;
        }
        if window.written < Self::LINES_MAX {
            window.written += 1;
            return RefusalLine::Written;
        }
        window.counted += 1;
        if window.counted == 1 {
            RefusalLine::FirstCounted
        } else {
            RefusalLine::Counted
        }
    }

    /// The number of counted refusals since the last call.
    pub(super) fn take(&self) -> u64 {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut window.counted)
    }
}

/// The pressure of the queue at the last look.
#[derive(Debug, Default)]
pub(super) struct PressureWatch {
    is_high: AtomicBool,
    /// Messages that are accepted before the next look.
    skipped: AtomicU64,
}

impl PressureWatch {
    /// Whether to look at the queue after this message. A look is a query, and an empty queue is not full after one message.
    pub(super) fn is_time(&self) -> bool {
        let skips = self
            .skipped
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        skips.is_err()
    }

    /// Whether the queue has become rather full since the last look. The next one is after `room` messages.
    pub(super) fn rises_to(&self, pressure: QueuePressure, room: u64) -> bool {
        self.skipped
            .store(room.saturating_sub(1), Ordering::Relaxed);
        let is_high = pressure >= QueuePressure::High;
        !self.is_high.swap(is_high, Ordering::Relaxed) && is_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_taken_again() {
        let places = IpcPlaces::default();
        let first = places.take(2).unwrap();
        let _second = places.take(2).unwrap();
        assert!(places.take(2).is_none());
        drop(first);
        assert!(places.take(2).is_some());
    }

    #[test]
    fn cm_032_a_burst_is_followed_by_the_sustained_rate() {
        let rates = IpcRates::default();
        let start = Instant::now();
        let admitted = |caller: &str, at: Instant| {
            (0..2_000)
                .filter(|_| rates.admits(caller, 100, 1_000, at))
                .count()
        };
        assert_eq!(admitted("a", start), 1_000);
        assert_eq!(admitted("a", start), 0);
        assert_eq!(admitted("b", start), 1_000, "another caller");
        assert_eq!(admitted("a", start + Duration::from_secs(1)), 100);
        assert_eq!(admitted("a", start + Duration::from_mins(1)), 1_000);
    }

    #[test]
    fn ten_refusals_of_a_second_are_written_and_the_others_counted() {
        let log = RefusalLog::default();
        let start = Instant::now();
        let admitted: Vec<_> = (0..15).map(|_| log.admit(start)).collect();
        assert!(
            admitted[..10]
                .iter()
                .all(|one| *one == RefusalLine::Written)
        );
        assert_eq!(admitted[10], RefusalLine::FirstCounted);
        assert!(
            admitted[11..]
                .iter()
                .all(|one| *one == RefusalLine::Counted)
        );
        let later = start + RefusalLog::WINDOW;
        assert_eq!(log.admit(later), RefusalLine::Written);
        assert_eq!(log.take(), 5);
        for _ in 0..9 {
            log.admit(later);
        }
        assert_eq!(log.admit(later), RefusalLine::FirstCounted);
        assert_eq!(log.take(), 1);
    }

    #[test]
    fn the_number_of_remembered_callers_has_a_bound() {
        let rates = IpcRates::default();
        let now = Instant::now();
        for number in 0..1_000 {
            assert!(rates.admits(&number.to_string(), 100, 1_000, now));
        }
        assert!(rates.0.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
