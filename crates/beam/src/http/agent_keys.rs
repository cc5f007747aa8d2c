//! Keys over HTTP: the keys of an agent, rotation, revocation, and all revoked keys.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::error::Code;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use super::access::BeamAccess;
use super::agents::known;
use super::problem_response::BeamProblemResponse;
use super::public_limits::PublicRoute;
use super::receive::PathBeamId;
use super::response::json_response;
use super::{BeamFace, agent_view, body_fields, receive};
use crate::directory::records::Agent;
use crate::directory::{AgentProof, KeyRevocation, KeyRotation};
use crate::text::BeamValue;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/agents/{beam_id}/keys", get(list))
        .route("/agents/{beam_id}/keys/rotate", post(rotate))
        .route("/agents/{beam_id}/keys/revoke", post(revoke))
        .route("/keys/revoked", get(revoked))
}

async fn list(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    face.charge(PublicRoute::Lookup, &request.into_parts().0)?;
    let agent = known(&face, id.as_str()).await?;
    let body = json!({
        "beamId": agent.beam_id,
        "keyState": agent_view::key_state(&agent),
    });
    Ok(json_response(StatusCode::OK, &body))
}

async fn rotate(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    face.charge_key_change(id.as_str())?;
    known(&face, id.as_str()).await?;
    let body = receive::json_object(&body)?;
    let names = ["new_public_key", "publicKey", "public_key"];
    let new_public_key = body_fields::text(&body, &names).ok_or_else(|| {
        BeamProblemResponse::new(Code::InvalidRotation, "new_public_key is required")
    })?;
    let rotation = KeyRotation {
        new_public_key,
        rotation_proof: body_fields::text(&body, &["rotation_proof"]),
        is_local: BeamAccess::of(&face, &parts).local,
        proof: key_proof(&face, &parts, &body).await?,
    };
    let (agent, previous) = face.beam.rotate_key(id.as_str(), &rotation).await?;
    let body = json!({"rotated": true, "previousKey": previous});
    Ok(changed(&face, &agent, body))
}

async fn revoke(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    face.charge_key_change(id.as_str())?;
    known(&face, id.as_str()).await?;
    let body = receive::json_object(&body)?;
    let public_key = body_fields::text(&body, &["public_key", "publicKey"]).ok_or_else(|| {
        BeamProblemResponse::new(Code::InvalidRevocation, "public_key is required")
    })?;
    let revocation = KeyRevocation {
        public_key,
        proof: key_proof(&face, &parts, &body).await?,
    };
    let (agent, key) = face.beam.revoke_key(id.as_str(), &revocation).await?;
    let body = json!({"revoked": true, "revokedKey": key});
    Ok(changed(&face, &agent, body))
}

/// Keys are changed by the agent itself, not by operators.
async fn key_proof(
    face: &BeamFace,
    parts: &Parts,
    body: &BeamValue,
) -> Result<AgentProof, BeamProblemResponse> {
    let proof = BeamAccess::of(face, parts).proof(face).await?;
    Ok(AgentProof {
        is_admin: false,
        signature: body_fields::timed_signature(body),
        ..proof
    })
}

fn changed(face: &BeamFace, agent: &Agent, mut body: Value) -> Response {
    body["beamId"] = json!(agent.beam_id);
    body["agent"] = agent_view::agent(face, agent);
    body["keyState"] = agent_view::key_state(agent);
    json_response(StatusCode::OK, &body)
}

async fn revoked(State(face): State<BeamFace>) -> Result<Response, BeamProblemResponse> {
    let keys = face.beam.revoked_keys().await?;
    let keys: Vec<_> = keys.iter().map(agent_view::revoked_key).collect();
    let body = json!({"total": keys.len(), "keys": keys});
    Ok(json_response(StatusCode::OK, &body))
}
