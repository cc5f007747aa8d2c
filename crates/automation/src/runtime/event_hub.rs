//! The live event stream: the last few hundred events, in memory. Slow readers lose events; the ledger holds the full history.
//!
//! Invariant: event numbers grow across restarts, unless the clock was set back. They start with the microsecond of the start, so
//! a number from before a restart is smaller than all later ones, and no reader skips an event it has not seen.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

const EVENTS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuntimeEvent {
    #[serde(skip)]
    pub number: u64,
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(with = "crate::instant")]
    pub at: Timestamp,
    pub data: Value,
}

#[derive(Debug)]
pub struct EventHub {
    events: Mutex<VecDeque<RuntimeEvent>>,
    last: watch::Sender<u64>,
}

impl EventHub {
    pub(super) fn new(at: Timestamp) -> Self {
        let first = u64::try_from(at.as_microsecond()).unwrap_or(0);
        Self {
            events: Mutex::default(),
            last: watch::Sender::new(first),
        }
    }

    pub fn publish(&self, kind: &'static str, at: Timestamp, data: Value) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.last.borrow() + 1;
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(RuntimeEvent {
            number,
            kind,
            at,
            data,
        });
        self.last.send_replace(number);
    }

    /// The retained events with a larger number.
    pub fn after(&self, number: u64) -> Vec<RuntimeEvent> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events
            .iter()
            .filter(|event| event.number > number)
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
        let earlier = EventHub::new("2026-01-01T00:00:00Z".parse().unwrap());
        let later = EventHub::new("2026-01-01T00:00:01Z".parse().unwrap());
        for hub in [&earlier, &later, &earlier, &earlier] {
            hub.publish("job.started", Timestamp::UNIX_EPOCH, Value::Null);
        }
        let seen = *earlier.follow().borrow();
        assert_eq!(earlier.after(seen), []);
        assert_eq!(later.after(seen).len(), 1);
    }
}
