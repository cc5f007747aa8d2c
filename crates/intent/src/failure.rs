//! The report of a failed attempt, alone or in a batch. What the protocol does not define is optional: `retry` and `retry_in`.

use std::borrow::Cow;

use consign_kernel::command::{HolderRetry, Settlement};
use consign_kernel::error::Code;
use consign_kernel::error_text;
use consign_kernel::json::Object;

use super::wire::{field, micros};
use consign_web::reject::Reject;

/// A failure as it is stored.
pub(super) struct FailureReport {
    pub(super) settlement: Settlement,
    /// The error was longer than what is kept of it.
    pub(super) truncated: bool,
}

impl FailureReport {
    pub(super) fn parse(object: &Object<'_>) -> Result<Self, Reject> {
        let text = match field(object, "error") {
            Some(raw) => raw.as_str().map_or_else(|| raw.compact(), Cow::into_owned),
            None => String::new(),
        };
        let kept = error_text::kept(text.trim());
        let truncated = matches!(kept, Cow::Owned(_));
        let error = if kept.is_empty() {
            "unknown".to_owned()
        } else {
            kept.into_owned()
        };
        let settlement = match retry(object)? {
            Some(retry) => Settlement::FailWith { error, retry },
            None => Settlement::Fail { error },
        };
        Ok(Self {
            settlement,
            truncated,
        })
    }
}

/// What the worker knows about the next attempt; `None` leaves it to the schedule of the intent.
fn retry(object: &Object<'_>) -> Result<Option<HolderRetry>, Reject> {
    let invalid = |message: &'static str| Reject::new(Code::InvalidRetry, message);
    match (field(object, "retry"), field(object, "retry_in")) {
        (Some(_), Some(_)) => Err(invalid("Send either retry or retry_in.")),
        (Some(raw), None) => match raw.as_bool() {
            Some(true) => Ok(None),
            Some(false) => Ok(Some(HolderRetry::Never)),
            None => Err(invalid("retry must be true or false.")),
        },
        (None, Some(raw)) => {
            let seconds = raw.as_f64().filter(|seconds| *seconds >= 0.0);
            let seconds = seconds
                .ok_or_else(|| invalid("retry_in must be a number of seconds, 0 or more."))?;
            Ok(Some(HolderRetry::After {
                us: micros(seconds),
            }))
        }
        (None, None) => Ok(None),
    }
}
