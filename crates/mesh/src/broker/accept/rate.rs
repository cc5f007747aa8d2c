//! How many messages, and how many other frames, a member may send: a bucket of tokens per member and node.
//!
//! Invariant: an id counts once in a minute, however often it is sent; memory is bounded, and members that do not fit share
//! one bucket.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_mins(1);
const MEMBERS_MAX: usize = 10_000;
/// Ids of one member that are remembered.
const IDS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct SendRate {
    per_minute: f64,
    burst: f64,
    buckets: Mutex<HashMap<(String, String), TokenBucket>>,
}

#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled_at: Instant,
    /// The ids that were counted last, oldest first.
    counted: VecDeque<(String, Instant)>,
}

impl SendRate {
    pub(crate) fn new(per_minute: u32, burst: u32) -> Self {
        Self {
            per_minute: f64::from(per_minute.max(1)),
            burst: f64::from(burst.max(1)),
            buckets: Mutex::default(),
        }
    }

    /// Counts a message of a member. If the bucket is empty, says in how many milliseconds it is not.
    pub(crate) fn charge(&self, mesh: &str, member: &str, id: Option<&str>) -> Result<(), u64> {
        self.charge_at(mesh, member, id, Instant::now())
    }

    fn charge_at(
        &self,
        mesh: &str,
        member: &str,
        id: Option<&str>,
        now: Instant,
    ) -> Result<(), u64> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (mesh.to_owned(), member.to_owned());
        if buckets.len() >= MEMBERS_MAX && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| now.duration_since(bucket.filled_at) < WINDOW);
            if buckets.len() >= MEMBERS_MAX {
                key = (String::new(), String::new());
            }
        }
        let bucket = buckets.entry(key).or_insert_with(|| TokenBucket {
            tokens: self.burst,
            filled_at: now,
            counted: VecDeque::new(),
        });
        bucket.charge(id, now, self.per_minute, self.burst)
    }
}

impl TokenBucket {
    fn charge(
        &mut self,
        id: Option<&str>,
        now: Instant,
        per_minute: f64,
        burst: f64,
    ) -> Result<(), u64> {
        let is_old = |at: &Instant| now.duration_since(*at) >= WINDOW;
        while self.counted.front().is_some_and(|(_, at)| is_old(at)) {
            self.counted.pop_front();
        }
        if id.is_some_and(|id| self.counted.iter().any(|(counted, _)| counted == id)) {
            return Ok(());
        }
        let per_ms = per_minute / 60_000.0;
        let passed_ms = now.duration_since(self.filled_at).as_secs_f64() * 1_000.0;
        self.tokens = (self.tokens + passed_ms * per_ms).min(burst);
        self.filled_at = now;
        if self.tokens < 1.0 {
            let wait = ((1.0 - self.tokens) / per_ms).ceil();
            return Err(
                Duration::try_from_secs_f64(wait / 1_000.0).map_or(u64::MAX, |wait| {
                    wait.as_millis().try_into().unwrap_or(u64::MAX)
                }),
            );
        }
        self.tokens -= 1.0;
        if let Some(id) = id {
            if self.counted.len() >= IDS_MAX {
                self.counted.pop_front();
            }
            self.counted.push_back((id.to_owned(), now));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_empties_and_fills_again() {
        let rate = SendRate::new(60, 2);
        assert_eq!(rate.charge("m", "a", None), Ok(()));
        assert_eq!(rate.charge("m", "a", None), Ok(()));
        assert_eq!(rate.charge("m", "a", None), Err(1_000));
        assert_eq!(rate.charge("m", "b", None), Ok(()), "a bucket per member");
        assert_eq!(rate.charge("n", "a", None), Ok(()), "and mesh");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(rate.charge("m", "a", None), Ok(()));
        assert!(rate.charge("m", "a", None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_counts_once_in_a_minute() {
        let rate = SendRate::new(1, 2);
        for _ in 0..5 {
            assert_eq!(rate.charge("m", "a", Some("c-1")), Ok(()));
        }
        assert_eq!(rate.charge("m", "a", Some("c-2")), Ok(()));
        assert!(rate.charge("m", "a", Some("c-3")).is_err());
        assert_eq!(rate.charge("m", "a", Some("c-1")), Ok(()));
    }
}
