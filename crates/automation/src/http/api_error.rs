//! Error responses of the protocol: a status, and `{"error": "<text>"}`.

use crate::runtime::TriggerError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use consign_engine::{Error, StoreError};
use consign_kernel::error::Refusal;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use consign_web::body::{BodyError, NO_ROOM_RETRY_AFTER_S};
use consign_web::throttle;

#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: Value,
    retry_after_s: Option<u32>,
    /// A wrong credential was presented, which is counted.
    failed_credential: bool,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let error: String = error.into();
        Self {
            status,
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
        Self::new(StatusCode::TOO_MANY_REQUESTS, error)
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn unauthorised() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "a valid bearer token is required")
    }

    /// For the control socket, where tokens of the configuration are not valid.
    pub(super) fn without_control_token() -> Self {
        let error = "the control socket needs its token, which the service writes to keys/control_token in its state directory at \
                     each start; it is for the commands of the service's own user";
        Self::new(StatusCode::UNAUTHORIZED, error)
    }

    pub(super) fn forbidden(error: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error)
    }

    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    pub(super) fn conflict(error: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }

    pub(super) fn wrong_method() -> Self {
        let error = "this path does not support this method; see the Allow header";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, error)
    }

    pub(super) fn busy(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// The response of a failed health check.
    pub(super) fn unhealthy(error: impl Into<String>) -> Self {
        let error: String = error.into();
        let mut error_response = Self::new(StatusCode::SERVICE_UNAVAILABLE, "");
        error_response.body = json!({"status": "unwell", "error": error});
        error_response
    }

    pub(super) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
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
        let mut response = answer(self.status, &self.body);
        if self.status == StatusCode::UNAUTHORIZED {
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
            Error::Refused(Refusal::IllegalState) => {
                Self::conflict("the state of the job does not allow this")
            }
            Error::Store(StoreError::Lost | StoreError::Unsure(_)) => {
                Self::busy("storage failed; it is not known whether the request took effect")
            }
            Error::Store(error) => {
                tracing::error!(%error, "storage failed");
                Self::busy("storage is unavailable and nothing was written; try again")
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
            let mut error_response = Self::new(StatusCode::PAYLOAD_TOO_LARGE, "");
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
        let mut error_response = Self::new(error.status(), error.to_string());
        error_response.retry_after_s =
            (error == BodyError::NoRoom).then_some(NO_ROOM_RETRY_AFTER_S);
        error_response
    }
}
