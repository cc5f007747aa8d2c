//! Error responses of the protocol: a status, and `{"error": "<sentence>"}`.
//!
//! The body has no code, because the protocol has none; each error is a row of the table of error codes all the same, which
//! gives it its status, its page in `docs/errors` and its name in the access log.

use crate::runtime::TriggerError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use consign_engine::{Error, StoreError};
use consign_kernel::error::{Code, Refusal};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use consign_web::access_log::ErrorCode;
use consign_web::body::{BodyError, NO_ROOM_RETRY_AFTER_S};
use consign_web::{error_status, throttle};

#[derive(Debug)]
pub(super) struct ApiError {
    code: Code,
    body: Value,
    retry_after_s: Option<u32>,
    /// A wrong credential was presented, which is counted.
    failed_credential: bool,
}

impl ApiError {
    pub(super) fn new(code: Code, error: impl Into<String>) -> Self {
        let error: String = error.into();
        Self {
            code,
            body: json!({"error": error}),
            retry_after_s: None,
            failed_credential: false,
        }
    }

    /// Counts the response as a wrong credential of its sender.
    pub(super) fn of_wrong_credential(mut self) -> Self {
        self.failed_credential = true;
        self
    }

    pub(super) fn too_many_failures() -> Self {
        let error = "too many wrong credentials came from this address; try again in a minute";
        Self::new(Code::RateLimited, error)
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, error)
    }

    pub(super) fn unauthorised() -> Self {
        Self::new(Code::Unauthorized, "a valid bearer token is required")
    }

    /// For the control socket, where tokens of the configuration are not valid.
    pub(super) fn without_control_token() -> Self {
        let error = "the control socket needs its token, which the service writes to keys/control_token in its state directory at \
                     each start; it is for the commands of the service's own user";
        Self::new(Code::Unauthorized, error)
    }

    pub(super) fn forbidden(error: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, error)
    }

    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self::new(Code::NotFound, error)
    }

    pub(super) fn wrong_method() -> Self {
        let error = "this path does not support this method; see the Allow header";
        Self::new(Code::MethodNotAllowed, error)
    }

    /// A limit of what the server does at once is reached.
    pub(super) fn busy(error: impl Into<String>) -> Self {
        Self::new(Code::ServerBusy, error)
    }

    /// The response of a failed health check.
    pub(super) fn unhealthy(error: impl Into<String>) -> Self {
        let error: String = error.into();
        let mut error_response = Self::new(Code::Unhealthy, "");
        error_response.body = json!({"status": "unwell", "error": error});
        error_response
    }

    pub(super) fn internal(error: impl Into<String>) -> Self {
        Self::new(Code::Internal, error)
    }
}

/// A JSON response.
pub(super) fn answer(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

pub(super) fn ok(body: &Value) -> Response {
    answer(StatusCode::OK, body)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = answer(error_status::of(self.code), &self.body);
        response.extensions_mut().insert(ErrorCode(self.code));
        if self.code == Code::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after_s {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.failed_credential {
            response = throttle::marked(response);
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(Refusal::NotFound) => Self::not_found("no job has this id"),
            Error::Refused(Refusal::IllegalState) => Self::new(
                Code::InvalidState,
                "the state of the job does not allow this",
            ),
            Error::Store(StoreError::Lost | StoreError::Unsure(_)) => {
                let error = "storage failed; it is not known whether the request took effect";
                Self::new(Code::StoreUnavailable, error)
            }
            Error::Store(error) => {
                tracing::error!(%error, "storage failed");
                let error = "storage is unavailable and nothing was written; try again";
                Self::new(Code::StoreUnavailable, error)
            }
            Error::Refused(_) | Error::Seal(_) | Error::NotSettled | Error::Internal(_) => {
                tracing::error!(%error, "a request to the automation failed");
                Self::internal("internal error; see the log of the service")
            }
        }
    }
}

impl From<TriggerError> for ApiError {
    fn from(error: TriggerError) -> Self {
        if let Some((actual, limit)) = error.baggage_bytes() {
            let mut error_response = Self::new(Code::BaggageTooLarge, "");
            error_response.body =
                json!({"error": error.to_string(), "bytes_actual": actual, "bytes_limit": limit});
            return error_response;
        }
        match error {
            TriggerError::Missing(missing) => Self::not_found(missing),
            TriggerError::Routing(error) => Self::bad(error.to_string()),
            TriggerError::Engine(error) => error.into(),
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLarge => Code::PayloadTooLarge,
            BodyError::TooSlow => Code::RequestTimeout,
            BodyError::Broken => Code::InvalidRequest,
            BodyError::NoRoom => Code::ServerBusy,
        };
        let mut error_response = Self::new(code, error.to_string());
        error_response.retry_after_s =
            (error == BodyError::NoRoom).then_some(NO_ROOM_RETRY_AFTER_S);
        error_response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use consign_kernel::profile::Face;

    use super::*;

    #[test]
    fn the_handlers_use_every_code_of_the_protocol_and_no_other() {
        let mut used = BTreeSet::new();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http")).unwrap() {
            let path = entry.unwrap().path();
            // Descriptions only repeat what handlers do.
            if path.is_dir() {
                continue;
            }
            let source = std::fs::read_to_string(path).unwrap();
            let source = source.replace("StatusCode::", "");
            for rest in source.split("Code::").skip(1) {
                let end = rest.find(|sign: char| !sign.is_alphanumeric());
                let word = &rest[..end.unwrap_or(rest.len())];
                if word.starts_with(|sign: char| sign.is_ascii_uppercase()) {
                    used.insert(word.to_owned());
                }
            }
        }
        let in_table = Code::of_face(Face::Automation).map(|code| format!("{code:?}"));
        assert_eq!(used, in_table.collect());
    }
}
