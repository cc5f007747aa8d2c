//! A stored intent as readers see it.

use consign_kernel::intent::{Intent, Outcome};
use consign_kernel::state::{Cause, State};

use crate::frame::IntentFrame;
use crate::lifecycle::{self, OutcomeBucket};
use crate::text::{self, BeamValue};
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

/// The parts of a stored frame that lists show. Stored texts are read as frames are, because a name in them may hold half of
/// a surrogate pair, which other parsers refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHead {
    pub nonce: String,
    pub timestamp: String,
    /// Only of an imported intent; see [`stored_frame`].
    latency: Option<f64>,
}

/// The member of a stored frame in which an import keeps the latency.
const IMPORTED_LATENCY: &str = "roundTripLatencyMs";

/// The text of a frame as it is stored: without the member that only an import may write.
pub(super) fn stored_frame(frame: &IntentFrame) -> String {
    let mut fields = frame.fields().clone();
    fields.remove(IMPORTED_LATENCY);
    BeamValue::Object(fields).to_text()
}

impl StoredHead {
    /// `None` if the text is no frame.
    pub fn of(frame: &str) -> Option<Self> {
        let frame = text::parse(frame.as_bytes()).ok()?;
        let member = |name: &str| frame.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            nonce: member("nonce")?,
            timestamp: member("timestamp")?,
            latency: frame.get(IMPORTED_LATENCY).and_then(BeamValue::as_f64),
        })
    }
}

/// The parts of a stored result that lists show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredEnd {
    pub error_code: Option<String>,
    pub latency: Option<f64>,
}

impl StoredEnd {
    /// `None` if the text is no object. Other types of the two members count as absent.
    pub fn of(result: &str) -> Option<Self> {
        let result = text::parse(result.as_bytes()).ok()?;
        let latency = result
            .as_object()?
            .get("latency")
            .and_then(BeamValue::as_f64);
        Some(Self {
            error_code: result
                .get("errorCode")
                .and_then(BeamValue::as_str)
                .map(str::to_owned),
            latency: latency.filter(|latency| latency.is_finite()),
        })
    }
}

impl IntentRow {
    /// `None` if the row is no intent of a directory.
    pub fn of(row: &Intent) -> Option<Self> {
        let frame = StoredHead::of(&row.payload)?;
        let requested = timestamp::parse(&frame.timestamp).unwrap_or(row.created_at);
        let result = row.result.as_ref().and_then(stored_end);
        let settled = row.settled_at;
        let of_result = result.as_ref().and_then(|result| result.latency);
        let stated = frame.latency.or(of_result);
        let latency_ms = match (stated, settled, &result) {
            (Some(stated), _, _) => Some(bounded_latency_ms(stated)),
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

/// The longest latency that counts. No result is awaited for longer.
const LATENCY_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// A stated latency in whole milliseconds. A recipient can state any number, and statistics add them up.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
pub(super) fn bounded_latency_ms(stated: f64) -> i64 {
    (stated.round() as i64).clamp(0, LATENCY_MS_MAX)
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
pub(crate) fn relay_code(error: &str) -> &str {
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

    #[test]
    fn a_stated_latency_is_bounded() {
        for (stated, expected) in [
            (3.4, 3),
            (-5.0, 0),
            (1e300, LATENCY_MS_MAX),
            (f64::NEG_INFINITY, 0),
            (f64::NAN, 0),
        ] {
            assert_eq!(bounded_latency_ms(stated), expected, "{stated}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_in_a_name_hides_nothing() {
        let head = StoredHead::of(r#"{"\udc00":1,"nonce":"n-1","timestamp":"t"}"#);
        assert_eq!(head.map(|head| head.nonce).as_deref(), Some("n-1"));
        let end = StoredEnd::of(r#"{"\udc00":1,"errorCode":"NOPE","latency":3}"#);
        let end = end.expect("it is an object");
        assert_eq!(end.error_code.as_deref(), Some("NOPE"));
        assert_eq!(end.latency, Some(3.0));
    }
}
