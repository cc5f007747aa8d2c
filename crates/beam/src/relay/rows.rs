//! A stored intent as readers see it.

use consign_kernel::intent::{Intent, Outcome};
use consign_kernel::state::{Cause, State};
use serde::Deserialize;
use serde_json::value::RawValue;

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredEnd {
    pub error_code: Option<String>,
    pub latency: Option<f64>,
}

impl StoredEnd {
    /// `None` if the text is no object. Other types of the two members count as absent, and so does half of a surrogate
    /// pair, which a recipient may send.
    pub fn of(result: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow, rename = "errorCode")]
            error_code: Option<&'a RawValue>,
            #[serde(borrow)]
            latency: Option<&'a RawValue>,
        }

        let members: Members<'_> = serde_json::from_str(result).ok()?;
        let text = |raw: &RawValue| serde_json::from_str(raw.get()).ok();
        let number = |raw: &RawValue| serde_json::from_str(raw.get()).ok();
        Some(Self {
            error_code: members.error_code.and_then(text),
            latency: members.latency.and_then(number),
        })
    }
}

impl IntentRow {
    /// `None` if the row is no intent of a directory.
    pub fn of(row: &Intent) -> Option<Self> {
        let frame: StoredFrameHead = serde_json::from_str(&row.payload).ok()?;
        let requested = timestamp::parse(&frame.timestamp).unwrap_or(row.created_at);
        let result = row.result.as_ref().and_then(stored_end);
        let settled = row.settled_at;
        let of_result = result.as_ref().and_then(|result| result.latency);
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

fn stored_end(result: &Outcome) -> Option<StoredEnd> {
    StoredEnd::of(&result.body)
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
    if let Some(result) = row.result.as_ref().and_then(stored_end) {
        return Some(result.error_code.unwrap_or_else(|| RESULT_ERROR.to_owned()));
    }
    let code = if row.cause == Cause::Recovered {
        "DELIVERY_FAILED"
    } else if matches!(row.cause, Cause::TimedOut | Cause::Expired) {
        "TIMEOUT"
    } else {
        relay_code(row.last_error.as_deref()?)
    };
    Some(code.to_owned())
}

/// An error of the relay begins with its code and a colon.
fn relay_code(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_read_from_every_result_that_a_recipient_may_send() {
        let end = |code: Option<&str>, latency| {
            Some(StoredEnd {
                error_code: code.map(str::to_owned),
                latency,
            })
        };
        for (result, expected) in [
            (
                r#"{"errorCode":"OUT_OF_STOCK","latency":12.5}"#,
                end(Some("OUT_OF_STOCK"), Some(12.5)),
            ),
            (r#"{"errorCode":null,"latency":null}"#, end(None, None)),
            (r#"{"errorCode":7,"latency":"3"}"#, end(None, None)),
            // Half of a surrogate pair, in these members or in another one.
            (
                r#"{"errorCode":"\ud800","latency":3}"#,
                end(None, Some(3.0)),
            ),
            (
                r#"{"errorCode":"A","latency":"\ud800"}"#,
                end(Some("A"), None),
            ),
            (
                r#"{"x":"\udc00","timestamp":"\ud800","errorCode":"\u0041"}"#,
                end(Some("A"), None),
            ),
            ("{}", end(None, None)),
            ("[]", None),
            ("no json", None),
        ] {
            assert_eq!(StoredEnd::of(result), expected, "{result}");
        }
    }
}
