//! Wrong credentials of programs on this machine. They count against the address only beyond an allowance of their own, so
//! that a script with many wrong credentials does not lock out clients with the right ones.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use consign_web::throttle::FailedCredential;

use super::BeamFace;
use super::access::BeamAccess;

/// Wrong credentials in a minute. Secrets of the length that this server generates cannot be guessed at this rate, and chosen
/// ones hardly.
pub(super) const FAILURES_PER_MINUTE: u32 = 120;

pub(super) async fn allow(State(face): State<BeamFace>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let is_local = BeamAccess::of(&face, &parts).loopback;
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if is_local
        && response.extensions().get::<FailedCredential>().is_some()
        && face.limits.local_failures.charge("")
    {
        response.extensions_mut().remove::<FailedCredential>();
    }
    response
}
