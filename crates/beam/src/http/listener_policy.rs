//! Applies the listener policy of the server: HTTPS only, and maintenance. Operators' routes stay open in maintenance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;
use consign_web::listener_policy::{Closed, ListenerPolicy};

use super::BeamFace;
use super::problem_response::BeamProblemResponse;

pub(super) async fn enforce(
    State(face): State<BeamFace>,
    request: Request,
    next: Next,
) -> Response {
    match check(*face.policy, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Whether a path serves operators, who need it to look after a server in maintenance.
pub(super) fn is_open_in_maintenance(path: &str) -> bool {
    ["/admin/auth/", "/observability/"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

pub(super) fn check(policy: ListenerPolicy, request: &Request) -> Result<(), BeamProblemResponse> {
    policy.check_transport(request.headers(), request.extensions())?;
    if is_open_in_maintenance(request.uri().path()) {
        return Ok(());
    }
    Ok(policy.check_open()?)
}

impl From<Closed> for BeamProblemResponse {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::PlainHttp => Self::new(Code::HttpsRequired, "HTTPS is required"),
            Closed::Maintenance => {
                Self::new(Code::Maintenance, "the server is in maintenance mode")
            }
        }
    }
}
