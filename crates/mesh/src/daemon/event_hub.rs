//! Events of the daemon, for all streams that follow them.
//!
//! Invariant: numbers increase by one; a stream that falls behind misses events and continues with the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::log::rfc3339_ms;
use crate::ipc::{MeshEventKind, sse_event};

/// Events that a slow stream may be behind.
const BEHIND_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct EventHub {
    events: broadcast::Sender<Arc<str>>,
    last: AtomicU64,
}

impl EventHub {
    pub(super) fn new() -> Self {
        Self {
            events: broadcast::Sender::new(BEHIND_MAX),
            last: AtomicU64::new(0),
        }
    }

    /// Sends an event to all streams; its time is added. Returns the data as it was sent.
    pub(super) fn publish(&self, kind: MeshEventKind, mut data: Value) -> Value {
        data["ts"] = json!(now_text());
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let text = sse_event(id, kind, &data.to_string());
        // Without streams nobody has to see it.
        let _ = self.events.send(text.into());
        data
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.events.subscribe()
    }
}

/// The time as RFC 3339 with milliseconds.
pub(super) fn now_text() -> String {
    rfc3339_ms(Timestamp::now())
}

/// A time in Unix milliseconds as text.
pub(super) fn ms_text(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    rfc3339_ms(time)
}
