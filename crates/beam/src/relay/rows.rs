//! A stored intent as readers see it.

use consign_kernel::intent::{Intent, Outcome};
use consign_kernel::state::{Cause, State};
use serde::Deserialize;

use crate::lifecycle::{self, OutcomeBucket};
use crate::timestamp;

/// The code of a recipient's failure that names none.
const RESULT_ERROR: &str = "RESULT_ERROR";

/// An intent of the directory without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct IntentRow {
    pub nonce: String,
    pub from: String,
    pub to: String,
    pub intent_type: String,
    /// When the sender sent it, by its own clock.
    pub timestamp: String,
    /// Milliseconds of the wall clock.
    pub requested_at_ms: i64,
    pub completed_at_ms: Option<i64>,
    pub latency_ms: Option<i64>,
    pub state: State,
    /// Only of a failed intent.
    pub error_code: Option<String>,
}

/// The parts of a stored frame that lists show.
#[derive(Deserialize)]
struct StoredFrameHead {
    nonce: String,
    timestamp: String,
    /// Only of an imported intent.
    #[serde(default, rename = "roundTripLatencyMs")]
    latency: Option<f64>,
}

/// The parts of a stored result that lists show.
#[derive(Deserialize)]
struct ResultHead {
    #[serde(rename = "errorCode")]
    error_code: Option<serde_json::Value>,
    latency: Option<serde_json::Value>,
}

impl IntentRow {
    /// `None` if the row is no intent of a directory.
    pub fn of(row: &Intent) -> Option<Self> {
        let frame: StoredFrameHead = serde_json::from_str(&row.payload).ok()?;
        let requested = timestamp::parse(&frame.timestamp).unwrap_or(row.created_at);
        let result = row.result.as_ref().and_then(result_head);
        let settled = row.settled_at;
        let of_result = result
            .as_ref()
            .and_then(|result| result.latency.as_ref())
            .and_then(serde_json::Value::as_f64);
        let stated = frame.latency.or(of_result);
        let latency_ms = match (stated, settled, &result) {
            (Some(stated), _, _) => Some(whole(stated)),
            (None, Some(settled), Some(_)) => Some((settled.0 - requested.0) / 1_000),
            _ => None,
        };
        Some(Self {
            nonce: frame.nonce,
            from: row.ties.sender.clone()?,
            to: row.owner.clone(),
            intent_type: row.goal.clone(),
            timestamp: frame.timestamp,
            requested_at_ms: requested.0 / 1_000,
            completed_at_ms: settled.map(|at| at.0 / 1_000),
            latency_ms,
            state: row.state,
            error_code: error_code(row),
        })
    }

    pub fn status(&self) -> &'static str {
        lifecycle::state_word(self.state)
    }
}

fn result_head(result: &Outcome) -> Option<ResultHead> {
    serde_json::from_str(&result.body).ok()
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// Why an intent failed: the recipient's own code, or that of the relay.
pub(crate) fn error_code(row: &Intent) -> Option<String> {
    if OutcomeBucket::of(row.state) != OutcomeBucket::Error {
        return None;
    }
    if let Some(result) = row.result.as_ref().and_then(result_head) {
        let code = result.error_code.as_ref().and_then(|code| code.as_str());
        return Some(code.unwrap_or(RESULT_ERROR).to_owned());
    }
    Some(match row.cause {
        Cause::Recovered => "DELIVERY_FAILED".to_owned(),
        Cause::TimedOut | Cause::Expired => "TIMEOUT".to_owned(),
        _ => relay_code(row.last_error.as_deref()?).to_owned(),
    })
}

/// An error of the relay begins with its code and a colon.
fn relay_code(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(code, _)| code)
}
