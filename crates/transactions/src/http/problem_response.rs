//! An error as an HTTP response: its name, its status, and the members of its body.
//!
//! Invariant: a name has one meaning. An error that may go away is never a 409 or 410, which clients treat as final, and every
//! error that asks to wait says for how long.

#[cfg(test)]
mod tests;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::response::json_value;
use crate::instant;
use crate::problem::{Problem, Unmet, may_still_hold};
use crate::state::AtpState;
use consign_web::throttle;

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
        self.kind().0
    }

    /// The name that clients branch on.
    pub fn name(&self) -> &'static str {
        self.kind().1
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

    fn kind(&self) -> (u16, &'static str) {
        match &self.0 {
            Problem::InvalidRequest { .. } => (400, "invalid_request"),
            Problem::IdempotencyKeyRequired => (400, "idempotency_key_required"),
            Problem::IdempotencyKeyInvalid { .. } => (400, "idempotency_key_invalid"),
            // A rail, unlike an agent, expects a 400.
            Problem::CallbackRefused { .. } => (400, "invalid_signature"),
            Problem::InvalidSignature { .. } => (401, "invalid_signature"),
            Problem::UnknownAgentKey => (401, "unknown_agent_key"),
            Problem::TimestampOutOfWindow { .. } => (401, "timestamp_out_of_window"),
            Problem::Unauthorized => (401, "unauthorized"),
            Problem::Forbidden
            | Problem::TokenRefused { .. }
            | Problem::CrossSite
            | Problem::ForeignHost => (403, "forbidden"),
            Problem::HttpsRequired => (403, "https_required"),
            Problem::SiteMismatch => (403, "site_mismatch"),
            Problem::ScopeViolation { .. } => (403, "scope_violation"),
            Problem::IntentNotFound => (404, "intent_not_found"),
            Problem::NotFound { .. } => (404, "not_found"),
            Problem::RequestTimeout => (408, "request_timeout"),
            Problem::NonceConsumed { .. } => (409, "nonce_consumed"),
            Problem::NotAuthorized => (409, "not_authorized"),
            Problem::InvalidState { .. }
            | Problem::NotInDoubt { .. }
            | Problem::IllegalMove { .. } => (409, "invalid_state"),
            Problem::Expired => (409, "expired"),
            Problem::ExecutionLimitReached => (409, "execution_limit_reached"),
            Problem::SpendCapExceeded => (409, "spend_cap_exceeded"),
            Problem::DuplicateAction { .. } => (409, "duplicate_action"),
            Problem::AlreadyCompensated => (409, "already_compensated"),
            Problem::IntentConflict => (409, "intent_conflict"),
            Problem::IntentExpired { .. } => (410, "intent_expired"),
            Problem::PreconditionFailed { unmet } if may_still_hold(unmet) => {
                (425, "precondition_failed")
            }
            Problem::PreconditionFailed { .. } => (412, "precondition_failed"),
            Problem::PayloadTooLarge { .. } => (413, "payload_too_large"),
            Problem::IdempotencyMismatch => (422, "idempotency_mismatch"),
            Problem::NonceMismatch => (422, "nonce_mismatch"),
            Problem::CurrencyMismatch => (422, "currency_mismatch"),
            Problem::RailMismatch { .. } => (422, "rail_mismatch"),
            Problem::PartialCompensationUnsupported => (422, "partial_compensation_unsupported"),
            Problem::RateLimited { .. } => (429, "rate_limited"),
            Problem::QuotaExceeded { .. } => (429, "quota_exceeded"),
            Problem::TooManyOpen { of_one: true, .. } => (429, "too_many_open"),
            Problem::TooManyOpen { of_one: false, .. } => (503, "too_many_open"),
            Problem::InternalError => (500, "internal_error"),
            Problem::StoreUnavailable | Problem::StoreUnsure => (503, "store_unavailable"),
            Problem::NotPrimary => (503, "not_primary"),
            Problem::Maintenance => (503, "maintenance"),
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
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = (status, json_value(body)).into_response();
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
