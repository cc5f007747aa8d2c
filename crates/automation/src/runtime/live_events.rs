//! Events of this process that leave no fact in the ledger: ticks, skipped schedules, breakers and started processes.
//!
//! The last few are kept in memory for the readers of this process. They have no number that a reader could continue after: a
//! slow reader loses some, and so does one that reconnects.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use consign_kernel::ids::IntentId;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::breaker::BreakerTransition;
use crate::schedule::Skip;

const EVENTS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct LiveEvent {
    pub at: Timestamp,
    pub kind: LiveEventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LiveEventKind {
    /// The scheduler checked the entries that were due.
    Tick {
        now: Timestamp,
        entries: usize,
        looked_at: usize,
        took_us: u64,
    },
    /// A schedule created no job.
    Skipped {
        plugin: String,
        schedule_id: String,
        command: String,
        reason: Skip,
        next_run_at: Option<Timestamp>,
    },
    /// A circuit breaker changed its state. The ledger keeps these changes as records, in no order with the facts.
    BreakerChanged {
        plugin: String,
        command: String,
        transition: BreakerTransition,
    },
    /// The process of a job was started.
    PluginSpawned {
        job: IntentId,
        plugin: String,
        command: String,
        pid: u32,
    },
}

/// The last events, and a signal for each new one.
#[derive(Debug)]
pub struct LiveEvents {
    /// The number of the last event is that of `last`.
    events: Mutex<VecDeque<LiveEvent>>,
    last: watch::Sender<u64>,
}

impl Default for LiveEvents {
    fn default() -> Self {
        Self {
            events: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }
}

impl LiveEvents {
    pub(super) fn publish(&self, at: Timestamp, kind: LiveEventKind) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(LiveEvent { at, kind });
        self.last.send_modify(|last| *last += 1);
    }

    /// The first kept events with numbers after `after` and up to `last`, and the number of the last one of them.
    pub fn between(&self, after: u64, last: u64, limit: usize) -> (Vec<LiveEvent>, u64) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = *self.last.borrow() - events.len() as u64;
        let numbered = (lost + 1..).zip(events.iter());
        let mut seen = after;
        let found = numbered
            .filter(|(number, _)| (after + 1..=last).contains(number))
            .take(limit)
            .map(|(number, event)| {
                seen = number;
                event.clone()
            });
        (found.collect(), seen)
    }

    /// Changes with each event, to its number.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(entries: usize) -> LiveEventKind {
        LiveEventKind::Tick {
            now: Timestamp::UNIX_EPOCH,
            entries,
            looked_at: 0,
            took_us: 0,
        }
    }

    #[test]
    fn readers_get_the_last_events_in_pages_and_lose_older_ones() {
        let live = LiveEvents::default();
        for entries in 1..=EVENTS_MAX + 10 {
            live.publish(Timestamp::UNIX_EPOCH, tick(entries));
        }
        let last = *live.follow().borrow();
        assert_eq!(last, EVENTS_MAX as u64 + 10);
        let (events, seen) = live.between(0, last, 2);
        let kinds: Vec<_> = events.into_iter().map(|event| event.kind).collect();
        assert_eq!((kinds, seen), (vec![tick(11), tick(12)], 12));
        let (events, seen) = live.between(seen, 14, 50);
        assert_eq!((events.len(), seen), (2, 14));
        assert_eq!(live.between(last, last, 50), (Vec::new(), last));
    }
}
