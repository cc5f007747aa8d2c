//! What an agent changes about itself over HTTP: profile, visibility and configuration.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::patch;
use consign_kernel::error::Code;
use http::StatusCode;
use serde_json::json;

use super::access::BeamAccess;
use super::agents::known;
use super::problem_response::BeamProblemResponse;
use super::receive::PathBeamId;
use super::response::json_response;
use super::{BeamFace, agent_view, body_fields, receive};
use crate::directory::records::{PUBLIC, UNLISTED};
use crate::directory::{ConfigUpdate, ProfileUpdate};

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/agents/{beam_id}/profile", patch(profile))
        .route("/agents/{beam_id}/visibility", patch(visibility))
        .route("/agents/{beam_id}/config", patch(config))
}

async fn profile(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    known(&face, id.as_str()).await?;
    let body = receive::json_object(&body)?;
    let update = ProfileUpdate {
        description: body_fields::update(&body, &["description"]),
        logo_url: body_fields::update(&body, &["logo_url", "logoUrl"]),
        website: body_fields::update(&body, &["website"]),
    };
    let signature = body_fields::header_signature(&parts.headers);
    let agent = face
        .beam
        .update_profile(id.as_str(), &update, signature.as_ref())
        .await?;
    let view = agent_view::agent(&face, &agent);
    Ok(json_response(StatusCode::OK, &view))
}

async fn visibility(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    known(&face, id.as_str()).await?;
    let body = receive::json_object(&body)?;
    let word = body_fields::text(&body, &["visibility"]).map(|word| word.to_lowercase());
    let visibility = match word.as_deref() {
        Some(PUBLIC) => PUBLIC,
        Some(UNLISTED) => UNLISTED,
        _ => {
            let text = "visibility must be \"public\" or \"unlisted\"";
            return Err(BeamProblemResponse::new(Code::InvalidParam, text));
        }
    };
    let access = BeamAccess::of(&face, &parts);
    let mut proof = access.proof(&face).await?;
    proof.signature = body_fields::timed_signature(&body);
    let changed = face.beam.set_visibility(id.as_str(), visibility, &proof);
    let agent = changed
        .await
        .map_err(|problem| BeamProblemResponse::refused(problem, &access))?;
    let view = agent_view::agent(&face, &agent);
    Ok(json_response(StatusCode::OK, &view))
}

async fn config(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    known(&face, id.as_str()).await?;
    let body = receive::json_object(&body)?;
    let update = ConfigUpdate {
        http_endpoint: body_fields::update(&body, &["httpEndpoint", "http_endpoint"]),
        dh_public_key: body_fields::update(&body, &["dhPublicKey", "dh_public_key"]),
    };
    if update.is_empty() {
        let text = "No config fields to update";
        return Err(BeamProblemResponse::new(Code::InvalidBody, text));
    }
    let access = BeamAccess::of(&face, &parts);
    let mut proof = access.proof(&face).await?;
    proof.signature = body_fields::timed_signature(&body);
    let agent = face
        .beam
        .set_config(id.as_str(), &update, &proof)
        .await
        .map_err(|problem| BeamProblemResponse::refused(problem, &access))?;
    let body = json!({
        "beamId": agent.beam_id,
        "httpEndpoint": agent.http_endpoint,
        "dhPublicKey": agent.dh_public_key,
    });
    Ok(json_response(StatusCode::OK, &body))
}
