//! Decisions of a daemon about its outbox: the answer to a request, and what an `ack` does to a row.
//!
//! Invariant: an id that has a row is never free again. A request with a known id changes no row, whatever its answer is, and
//! the daemon never chooses another id by itself.

#[cfg(test)]
mod tests;

use consign_kernel::plant::{self, Plant};

use crate::fingerprint::RequestFingerprint;
use crate::frame::AckFrame;
use crate::role::words;

words! {
    /// The status of a row.
    OutboxStatus {
        Pending => "pending",
        Inflight => "inflight",
        Done => "done",
        Dead => "dead",
        /// Retired by an operator.
        Aborted => "aborted",
    }
}

impl OutboxStatus {
    /// Whether an operator may send the row again under a new id.
    pub const fn may_requeue(self) -> bool {
        matches!(self, Self::Pending | Self::Inflight | Self::Dead)
    }

    /// Whether the row counts against `max_queue_size`.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Pending | Self::Inflight)
    }
}

/// The stored result of the first request with an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    pub status: OutboxStatus,
    pub fingerprint: RequestFingerprint,
    pub broker_message_id: Option<String>,
    pub history_id: Option<String>,
    pub last_error: Option<String>,
}

/// The answer to a request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxAnswer {
    /// No row has the id: add one. 202.
    Enqueue,
    /// The same request is on its way. 202 with the status `queued` or `inflight`.
    OnItsWay(OutboxStatus),
    /// The same request was delivered. 200.
    Delivered {
        broker_message_id: Option<String>,
        history_id: Option<String>,
    },
    /// 409.
    Conflict(OutboxConflict),
}

/// Why an id cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxConflict {
    pub status: OutboxStatus,
    pub is_same_request: bool,
    /// The beginning of the fingerprint of this request.
    pub fingerprint_prefix: String,
    pub broker_message_id: Option<String>,
    pub reason: Option<String>,
}

impl OutboxConflict {
    /// The word for the status of the row and the comparison.
    pub fn word(&self) -> String {
        let comparison = if self.is_same_request {
            "match"
        } else {
            "mismatch"
        };
        format!("outbox_{}_fingerprint_{comparison}", self.status)
    }
}

/// Decides a request by the row of its id.
pub fn decide_send(row: Option<&OutboxRow>, fingerprint: RequestFingerprint) -> OutboxAnswer {
    let Some(row) = row else {
        return OutboxAnswer::Enqueue;
    };
    let is_same_request = row.fingerprint == fingerprint || plant::on(Plant::ConflictIsQueued);
    let conflict = OutboxConflict {
        status: row.status,
        is_same_request,
        fingerprint_prefix: fingerprint.prefix(),
        broker_message_id: None,
        reason: None,
    };
    match (row.status, is_same_request) {
        (OutboxStatus::Pending | OutboxStatus::Inflight, true) => {
            OutboxAnswer::OnItsWay(row.status)
        }
        (OutboxStatus::Done, true) => OutboxAnswer::Delivered {
            broker_message_id: row.broker_message_id.clone(),
            history_id: row.history_id.clone(),
        },
        (OutboxStatus::Done, false) => OutboxAnswer::Conflict(OutboxConflict {
            broker_message_id: row.broker_message_id.clone(),
            ..conflict
        }),
        (OutboxStatus::Dead, true) => OutboxAnswer::Conflict(OutboxConflict {
            reason: row.last_error.clone(),
            ..conflict
        }),
        (OutboxStatus::Pending | OutboxStatus::Inflight | OutboxStatus::Dead, false)
        | (OutboxStatus::Aborted, _) => OutboxAnswer::Conflict(conflict),
    }
}

/// What an `ack` does to the row that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckOutcome {
    Done {
        broker_message_id: String,
        /// The broker had accepted it before.
        is_duplicate: bool,
        /// The broker's copy is gone. The message was delivered; a warning and a counter report it.
        is_pruned: bool,
    },
    /// Waits and is sent again.
    Retry(String),
    /// Never sent again. `is_reused` is a conflict of the id, which is reported as an error.
    Dead { error: String, is_reused: bool },
}

/// Texts of upstream's broker that are permanent. It sends no code.
const PERMANENT_WORDS: &[&str] = &[
    "payload_too_large",
    "forbidden",
    "not_found",
    "invalid",
    "schema",
    "auth",
    "signature",
];

/// Bytes of an error of the broker that are kept.
const ERROR_BYTES_MAX: usize = 1_024;

pub fn ack_outcome(ack: &AckFrame) -> AckOutcome {
    let error = || {
        let text = ack.error.as_deref().unwrap_or("refused");
        // The broker is not ours, and the text is stored with the row.
        text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()
    };
    match ack.code {
        Some(200..=299) => done(ack),
        Some(409) if plant::on(Plant::ReusedIdRetried) => AckOutcome::Retry(error()),
        Some(409) => AckOutcome::Dead {
            error: error(),
            is_reused: true,
        },
        Some(408 | 425 | 429) => AckOutcome::Retry(error()),
        Some(400..=499) => AckOutcome::Dead {
            error: error(),
            is_reused: false,
        },
        Some(_) => AckOutcome::Retry(error()),
        None if ack.queued && ack.error.is_none() => done(ack),
        None if PERMANENT_WORDS.iter().any(|word| error().contains(word)) => AckOutcome::Dead {
            error: error(),
            is_reused: false,
        },
        None => AckOutcome::Retry(error()),
    }
}

fn done(ack: &AckFrame) -> AckOutcome {
    let id = ack.broker_message_id.as_ref().unwrap_or(&ack.message_id);
    AckOutcome::Done {
        broker_message_id: id.clone(),
        is_duplicate: ack.duplicate.unwrap_or_default(),
        is_pruned: ack.history_available == Some(false),
    }
}

/// How full the outbox is, by rows or by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueuePressure {
    Normal,
    /// From 80 %: an event and a gauge.
    High,
    /// From 95 %: new messages get 507.
    Refusing,
    /// At 100 %: no new event streams either.
    Degraded,
}

impl QueuePressure {
    pub const fn of(used: u64, limit: u64) -> Self {
        let percent = match used.saturating_mul(100).checked_div(limit) {
            Some(percent) => percent,
            None => 100,
        };
        match percent {
            0..80 => Self::Normal,
            80..95 => Self::High,
            95..100 => Self::Refusing,
            _ => Self::Degraded,
        }
    }

    pub const fn accepts(self) -> bool {
        matches!(self, Self::Normal | Self::High)
    }
}
