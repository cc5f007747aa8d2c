//! The switches of the whole server, as they hold for agents, users and rails.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_transactions::problem::Problem;

use super::{Face, Refused};
use crate::web::door::Shut;

pub(super) async fn keep(State(face): State<Face>, request: Request, next: Next) -> Response {
    match face.check_door(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => Refused(problem).into_response(),
    }
}

impl Face {
    /// How it is, and the documents of keys, are told to everybody; in maintenance operators are let in.
    fn check_door(&self, request: &Request) -> Result<(), Problem> {
        let path = request.uri().path();
        if path == "/api/atp/health" || path.starts_with("/.well-known/") {
            return Ok(());
        }
        let (door, headers) = (self.options.door, request.headers());
        door.check_transport(headers, request.extensions())
            .map_err(told)?;
        if path.starts_with("/api/atp/admin/") || self.operator(headers).is_ok() {
            return Ok(());
        }
        door.check_open().map_err(told)
    }
}

fn told(shut: Shut) -> Problem {
    match shut {
        Shut::PlainHttp => Problem::HttpsRequired,
        Shut::Maintenance => Problem::Maintenance,
    }
}
