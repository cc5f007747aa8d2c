//! Applies the listener policy of the server: HTTPS only, and maintenance. Operators' routes stay open in maintenance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_web::listener_policy::ListenerPolicy;
use consign_web::reject::Reject;

use super::face::MeshFace;

pub(super) async fn enforce(
    State(face): State<MeshFace>,
    request: Request,
    next: Next,
) -> Response {
    match check(face.policy, &request) {
        Ok(()) => next.run(request).await,
        Err(reject) => reject.into_response(),
    }
}

/// Whether a path serves operators, who need it to look after a server in maintenance.
pub(super) fn is_open_in_maintenance(path: &str) -> bool {
    ["/v1/meshes", "/v1/mesh/"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

pub(super) fn check(policy: ListenerPolicy, request: &Request) -> Result<(), Reject> {
    policy.check_transport(request.headers(), request.extensions())?;
    if is_open_in_maintenance(request.uri().path()) {
        return Ok(());
    }
    Ok(policy.check_open()?)
}
