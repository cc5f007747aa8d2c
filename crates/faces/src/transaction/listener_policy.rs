//! The access rules of the server, as they apply to agents, users and rails.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_transactions::problem::Problem;

use super::{Face, Refused};
use crate::web::listener_policy::Closed;

pub(super) async fn enforce(State(face): State<Face>, request: Request, next: Next) -> Response {
    match face.check_policy(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => Refused(problem).into_response(),
    }
}

impl Face {
    /// Health and key documents are public; in maintenance operators have access.
    fn check_policy(&self, request: &Request) -> Result<(), Problem> {
        let path = request.uri().path();
        if path == "/api/atp/health" || path.starts_with("/.well-known/") {
            return Ok(());
        }
        let (policy, headers) = (self.options.policy, request.headers());
        policy
            .check_transport(headers, request.extensions())
            .map_err(problem)?;
        if path.starts_with("/api/atp/admin/") || self.operator(headers).is_ok() {
            return Ok(());
        }
        policy.check_open().map_err(problem)
    }
}

fn problem(closed: Closed) -> Problem {
    match closed {
        Closed::PlainHttp => Problem::HttpsRequired,
        Closed::Maintenance => Problem::Maintenance,
    }
}
