//! `POST /v1/me/members/PUBKEY/leave`: a member ends its own membership, with a request that it signs.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::post;
use consign_kernel::error::Code;
use consign_web::body;
use consign_web::json_out::json_response;
use consign_web::reject::Reject;
use serde_json::json;

use super::face::MeshFace;
use super::operators::rejection;
use crate::keys::MeshPublicKey;
use crate::limits::HTTP_BODY_BYTES_MAX;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new().route("/v1/me/members/{pubkey}/leave", post(leave))
}

/// The member that signs is the one in the path. The id of the member never lives again.
async fn leave(
    State(face): State<MeshFace>,
    Path(pubkey): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let holder = face.signing_member(&parts).await?;
    let sender = body::sender(&parts.extensions);
    body::receive(body, HTTP_BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
    if MeshPublicKey::parse(&pubkey) != Ok(holder.member.pubkey) {
        let text = "A member ends its own membership only.";
        return Err(Reject::new(Code::Forbidden, text));
    }
    let left = face.broker.leave(&holder.mesh.id, &holder.member.id).await;
    let left = left.map_err(rejection)?;
    let body = json!({"ok": true, "memberId": left.id});
    Ok(json_response(body.to_string()))
}
