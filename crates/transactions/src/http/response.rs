//! A successful response: its status, its exact body, and the headers of the protocol. `views` makes it from the results of
//! the site.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::state::AtpState;

/// How long a client should wait before it asks again for a state that is not final.
const PENDING_RETRY_AFTER_S: u32 = 1;

/// A response of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteResponse {
    pub status: u16,
    pub body: String,
    /// The header `ATP-State`.
    pub state: Option<AtpState>,
    /// The header `Idempotent-Replayed`: the operation was not executed again.
    pub replayed: bool,
}

impl SiteResponse {
    pub(super) fn new(status: u16, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("a body has string keys only");
        Self::text(status, body)
    }

    pub(super) fn text(status: u16, body: String) -> Self {
        Self {
            status,
            body,
            state: None,
            replayed: false,
        }
    }

    #[must_use]
    pub(super) fn at(self, state: AtpState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    #[must_use]
    pub(super) fn replayed(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }

    /// The value of the header `Retry-After`.
    pub fn retry_after_s(&self) -> Option<u32> {
        (self.status == 202).then_some(PENDING_RETRY_AFTER_S)
    }
}

impl IntoResponse for SiteResponse {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after_s();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let mut response = (status, json_text(self.body)).into_response();
        let headers = response.headers_mut();
        if self.replayed {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        if let Some(state) = self.state {
            headers.insert("atp-state", HeaderValue::from_static(state.word()));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

pub(super) fn json_value(value: &Value) -> Response {
    json_text(value.to_string())
}

pub(super) fn json_text(text: String) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], text).into_response()
}
