//! Applies the listener policy of the server: HTTPS only, and maintenance. Operators' routes stay open in maintenance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_kernel::error::Code;
use consign_web::listener_policy::Closed;

use super::BeamFace;
use super::problem_response::BeamProblemResponse;

pub(super) async fn enforce(
    State(face): State<BeamFace>,
    request: Request,
    next: Next,
) -> Response {
    let is_for_operators = ["/admin/auth/", "/observability/"]
        .iter()
        .any(|prefix| request.uri().path().starts_with(prefix));
    let transport = face
        .policy
        .check_transport(request.headers(), request.extensions());
    let allowed = transport.and_then(|()| {
        if is_for_operators {
            Ok(())
        } else {
            face.policy.check_open()
        }
    });
    match allowed {
        Ok(()) => next.run(request).await,
        Err(Closed::PlainHttp) => {
            BeamProblemResponse::new(Code::HttpsRequired, "Use HTTPS").into_response()
        }
        Err(Closed::Maintenance) => {
            let text = "The server is in maintenance; try again later";
            BeamProblemResponse::new(Code::Maintenance, text).into_response()
        }
    }
}
