//! An error as an HTTP response: the status of its code, and the members of its body.
//!
//! Invariant: an error that may go away is never a 409 or 410, which clients treat as final, and every
//! error that asks to wait says for how long.

#[cfg(test)]
mod tests;

use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::response::json_value;
use crate::instant;
use crate::problem::{Problem, Unmet, may_still_hold};
use crate::state::AtpState;
use consign_web::access_log::ErrorCode;
use consign_web::{error_status, throttle};

/// The default delay for clients.
const RETRY_AFTER_S: u32 = 1;
/// Maintenance usually takes longer than a second.
const MAINTENANCE_RETRY_AFTER_S: u32 = 30;
/// Intents do not expire within a second either.
const OPEN_RETRY_AFTER_S: u32 = 60;

/// An error in the protocol's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemResponse(pub Problem);

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl ProblemResponse {
    pub fn status(&self) -> u16 {
        error_status::of(self.0.code()).as_u16()
    }

    /// The name that clients branch on.
    pub fn name(&self) -> &'static str {
        self.0.code().name()
    }

    /// The value of the header `Retry-After`.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others follow from the status"
    )]
    pub fn retry_after_s(&self) -> Option<u32> {
        match &self.0 {
            Problem::RateLimited { retry_after_s } | Problem::QuotaExceeded { retry_after_s } => {
                Some(*retry_after_s)
            }
            Problem::Maintenance => Some(MAINTENANCE_RETRY_AFTER_S),
            Problem::TooManyOpen { .. } => Some(OPEN_RETRY_AFTER_S),
            _ if matches!(self.status(), 425 | 503) => Some(RETRY_AFTER_S),
            _ => None,
        }
    }

    /// The members of the body besides name and message.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most have nothing to add")]
    fn extras(&self) -> Vec<(&'static str, Value)> {
        match &self.0 {
            Problem::InvalidRequest {
                field: Some(field), ..
            } => vec![("field", json!(field))],
            Problem::NonceConsumed { first_consumed_at } => {
                vec![(
                    "first_consumed_at",
                    json!(instant::print(*first_consumed_at)),
                )]
            }
            Problem::InvalidState { state } | Problem::NotInDoubt { state } => {
                vec![("state", json!(state.word()))]
            }
            Problem::IllegalMove { from, .. } => vec![("state", json!(from))],
            Problem::DuplicateAction {
                first_seen_at,
                window_s,
            } => vec![
                ("first_seen_at", json!(instant::print(*first_seen_at))),
                ("window_s", json!(window_s)),
            ],
            Problem::IntentExpired { expires_at, reason } => vec![
                ("expires_at", json!(instant::print(*expires_at))),
                ("reason", json!(reason.word())),
            ],
            Problem::PreconditionFailed { unmet } => {
                let entry = |unmet: &Unmet| {
                    let actual = unmet.actual.map_or("unknown", AtpState::word);
                    json!({"intent_id": unmet.intent_id, "required": AtpState::Settled.word(), "actual": actual})
                };
                vec![
                    ("unmet", unmet.iter().map(entry).collect()),
                    ("retryable", json!(may_still_hold(unmet))),
                ]
            }
            Problem::PayloadTooLarge { max_bytes } => vec![("max_bytes", json!(max_bytes))],
            _ => Vec::new(),
        }
    }

    /// The body as a value, for handlers that add members.
    pub(super) fn body(&self) -> Value {
        serde_json::to_value(self).expect("a body has string keys only")
    }

    /// The response with another body.
    pub(super) fn with_body(&self, body: &Value) -> Response {
        let code = self.0.code();
        let mut response = (error_status::of(code), json_value(body)).into_response();
        response.extensions_mut().insert(ErrorCode(code));
        if let Some(seconds) = self.retry_after_s() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if matches!(
            self.0,
            Problem::TokenRefused { .. } | Problem::CallbackRefused { .. }
        ) {
            response = throttle::marked(response);
        }
        response
    }
}

/// The body of the response.
impl Serialize for ProblemResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("ok", &false)?;
        body.serialize_entry("error", self.name())?;
        body.serialize_entry("message", &self.0.to_string())?;
        for (name, value) in self.extras() {
            body.serialize_entry(name, &value)?;
        }
        body.end()
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        self.with_body(&self.body())
    }
}
