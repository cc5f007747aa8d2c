//! Applies the listener policy of the server to the API and the webhooks.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;

use super::api_error::ApiError;
use consign_web::listener_policy::{Closed, ListenerPolicy};

pub(super) fn apply(router: Router, policy: ListenerPolicy) -> Router {
    if policy.restricts_access() {
        router.layer(from_fn_with_state(policy, enforce))
    } else {
        router
    }
}

async fn enforce(State(policy): State<ListenerPolicy>, request: Request, next: Next) -> Response {
    // The health endpoint has its own access rule.
    let is_free = request.uri().path() == "/healthz";
    let checked = policy
        .check_transport(request.headers(), request.extensions())
        .and_then(|()| policy.check_open());
    match checked {
        Err(closed) if !is_free => ApiError::from(closed).into_response(),
        Ok(()) | Err(_) => next.run(request).await,
    }
}

impl From<Closed> for ApiError {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::PlainHttp => Self::new(Code::HttpsRequired, "HTTPS is required"),
            Closed::Maintenance => {
                Self::new(Code::Maintenance, "the server is in maintenance mode")
            }
        }
    }
}
