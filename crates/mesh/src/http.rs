//! The broker over HTTP: joining a mesh, sending with an API key, and the routes of operators.
//!
//! `join` and `messages` have the bodies that clients outside of this repository use; each module with routes has their
//! handlers, and `face` what they share. Errors have the format of the server, except that of `/join`.

mod blob_transfers;
mod blobs;
mod face;
mod join;
mod join_route;
mod leave;
mod listener_rules;
mod member_signature;
mod messages;
mod messages_route;
mod metrics;
mod mount;
pub mod openapi;
mod operators;
mod socket;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;
use consign_web::reject::Reject;

pub use join::{JoinAnswer, JoinRequest};
pub use messages::{MessagePost, MessagePostAnswer};
pub use mount::MeshMount;

use face::MeshFace;

/// A body that is no request of this route. The status is 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBody(pub String);

/// All routes but that of the socket. It has no fallback, so that it can be merged into another router.
fn router(face: MeshFace) -> Router {
    let routes = Router::new()
        .merge(blobs::routes())
        .merge(join_route::routes())
        .merge(leave::routes())
        .merge(messages_route::routes())
        .merge(operators::routes(&face));
    around(routes, face)
}

/// The route of the socket, a router of its own because other protocols share its path.
fn socket_router(face: MeshFace) -> Router {
    around(socket::routes(), face)
}

fn around(routes: Router<MeshFace>, face: MeshFace) -> Router {
    let routes = routes.method_not_allowed_fallback(wrong_method);
    let routes = if face.policy.restricts_access() {
        routes.layer(from_fn_with_state(face.clone(), listener_rules::enforce))
    } else {
        routes
    };
    routes.with_state(face)
}

/// The router adds the `Allow` header.
async fn wrong_method() -> Response {
    let text = "This path does not take this method; see the Allow header.";
    Reject::new(Code::MethodNotAllowed, text).into_response()
}
