//! An error as a response: `{"error": text, "errorCode": CODE}`, with the status of its code.

use axum::response::{IntoResponse, Response};
use consign_engine::Error;
use consign_kernel::error::Code;
use consign_web::access_log::ErrorCode;
use consign_web::{error_status, throttle};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::access::BeamAccess;
use super::response::json_response;
use crate::problem::BeamProblem;

/// An error in the protocol's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BeamProblemResponse {
    pub(crate) problem: BeamProblem,
    /// A credential was presented and is wrong, so it counts against the address.
    pub(crate) wrong_credential: bool,
    /// Another status than that of the code.
    status: Option<StatusCode>,
}

impl From<BeamProblem> for BeamProblemResponse {
    fn from(problem: BeamProblem) -> Self {
        Self {
            problem,
            wrong_credential: false,
            status: None,
        }
    }
}

impl From<Error> for BeamProblemResponse {
    fn from(error: Error) -> Self {
        BeamProblem::from(error).into()
    }
}

impl BeamProblemResponse {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        BeamProblem::new(code, text).into()
    }

    /// A refusal that counts against the address if the request had a credential, which is wrong then.
    pub(crate) fn refused(problem: BeamProblem, access: &BeamAccess) -> Self {
        let wrong_credential = problem.code == Code::Unauthorized && access.has_credential();
        Self {
            problem,
            wrong_credential,
            status: None,
        }
    }

    /// A wrong credential, which counts against the address.
    pub(crate) fn wrong_credential(problem: BeamProblem) -> Self {
        Self {
            problem,
            wrong_credential: true,
            status: None,
        }
    }

    /// With another status than that of its code, where the protocol prescribes both.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }
}

/// The word on the wire.
pub(crate) fn word(code: Code) -> String {
    code.name().to_ascii_uppercase()
}

impl IntoResponse for BeamProblemResponse {
    fn into_response(self) -> Response {
        let BeamProblem { code, text } = self.problem;
        let body = json!({"error": text, "errorCode": word(code)});
        let status = self.status.unwrap_or_else(|| error_status::of(code));
        let mut response = json_response(status, &body);
        response.extensions_mut().insert(ErrorCode(code));
        if status == StatusCode::TOO_MANY_REQUESTS {
            let minute = HeaderValue::from_static("60");
            response.headers_mut().insert(RETRY_AFTER, minute);
        }
        if self.wrong_credential {
            response = throttle::marked(response);
        }
        response
    }
}
