//! Requests that no route takes: a wrong method, and an unknown path below a path of this protocol.

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;
use consign_web::listener_policy::ListenerPolicy;

use super::listener_policy;
use super::problem_response::BeamProblemResponse;

/// The router adds the `Allow` header.
pub(super) async fn wrong_method() -> BeamProblemResponse {
    let text = "this path does not support this method; see the Allow header";
    BeamProblemResponse::new(Code::MethodNotAllowed, text)
}

pub(super) fn unknown_path(policy: ListenerPolicy, request: &Request) -> Response {
    match listener_policy::check(policy, request) {
        Ok(()) => BeamProblemResponse::new(Code::NotFound, "Not found").into_response(),
        Err(closed) => closed.into_response(),
    }
}
