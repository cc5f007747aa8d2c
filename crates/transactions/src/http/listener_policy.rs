//! Applies the listener policy of the server to agents, users and rails.

use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{ProblemResponse, TransactionFace};
use consign_web::listener_policy::Closed;

pub(super) async fn enforce(
    State(face): State<TransactionFace>,
    request: Request,
    next: Next,
) -> Response {
    match face.check_listener_policy(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => ProblemResponse(problem).into_response(),
    }
}

impl TransactionFace {
    /// Health and key documents are always served; in maintenance, operators have access.
    fn check_listener_policy(&self, request: &Request) -> Result<(), Problem> {
        let path = request.uri().path();
        if path == "/api/atp/health" || path.starts_with("/.well-known/") {
            return Ok(());
        }
        let (policy, headers) = (self.options.policy, request.headers());
        policy
            .check_transport(headers, request.extensions())
            .map_err(to_problem)?;
        if path.starts_with("/api/atp/admin/") || self.operator(headers).is_ok() {
            return Ok(());
        }
        policy.check_open().map_err(to_problem)
    }
}

fn to_problem(closed: Closed) -> Problem {
    match closed {
        Closed::PlainHttp => Problem::HttpsRequired,
        Closed::Maintenance => Problem::Maintenance,
    }
}
