//! Applies the listener policy of the server to the API and the webhooks.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use super::api_error::ApiError;
use crate::web::door::{Door, Shut};

pub(super) fn apply(router: Router, door: Door) -> Router {
    if door.is_kept() {
        router.layer(from_fn_with_state(door, enforce))
    } else {
        router
    }
}

async fn enforce(State(door): State<Door>, request: Request, next: Next) -> Response {
    // The health endpoint has its own access rule.
    let is_free = request.uri().path() == "/healthz";
    let checked = door
        .check_transport(request.headers(), request.extensions())
        .and_then(|()| door.check_open());
    match checked {
        Err(shut) if !is_free => ApiError::from(shut).into_response(),
        Ok(()) | Err(_) => next.run(request).await,
    }
}

impl From<Shut> for ApiError {
    fn from(shut: Shut) -> Self {
        match shut {
            Shut::PlainHttp => Self::forbidden("HTTPS is required"),
            Shut::Maintenance => Self::busy("the server is in maintenance mode"),
        }
    }
}
