//! What happens right now, for whoever watches: the last few hundred events in memory. Slow readers lose some; the ledger has it all.
//!
//! Invariant: numbers grow over restarts, unless the clock was set back. They begin with the microsecond of the start, so a number that
//! a reader brings along from before it lies below all of them, and nothing is taken for seen that was not.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

const KEPT_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    #[serde(skip)]
    pub number: u64,
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(with = "crate::instant")]
    pub at: Timestamp,
    pub data: Value,
}

#[derive(Debug)]
pub struct Hub {
    kept: Mutex<VecDeque<Told>>,
    last: watch::Sender<u64>,
}

impl Hub {
    pub(super) fn started(at: Timestamp) -> Self {
        let first = u64::try_from(at.as_microsecond()).unwrap_or(0);
        Self {
            kept: Mutex::default(),
            last: watch::Sender::new(first),
        }
    }

    pub fn tell(&self, kind: &'static str, at: Timestamp, data: Value) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.last.borrow() + 1;
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Told {
            number,
            kind,
            at,
            data,
        });
        self.last.send_replace(number);
    }

    /// What is still there of what came after `number`.
    pub fn after(&self, number: u64) -> Vec<Told> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter()
            .filter(|told| told.number > number)
            .cloned()
            .collect()
    }

    /// Changes with each event, to its number.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_an_earlier_start_hides_nothing_of_a_later_one() {
        let earlier = Hub::started("2026-01-01T00:00:00Z".parse().unwrap());
        let later = Hub::started("2026-01-01T00:00:01Z".parse().unwrap());
        for hub in [&earlier, &later, &earlier, &earlier] {
            hub.tell("job.started", Timestamp::UNIX_EPOCH, Value::Null);
        }
        let seen = *earlier.follow().borrow();
        assert_eq!(earlier.after(seen), []);
        assert_eq!(later.after(seen).len(), 1);
    }
}
