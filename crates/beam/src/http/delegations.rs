//! Delegations over HTTP.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{delete, get, post};
use consign_kernel::error::Code;
use http::StatusCode;
use serde_json::{Value, json};

use super::problem_response::BeamProblemResponse;
use super::receive::{PathBeamId, PathText};
use super::response::json_response;
use super::{BeamFace, body_fields, receive};
use crate::directory::DelegationRequest;
use crate::directory::records::Delegation;
use crate::text::BeamValue;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/agents/{beam_id}/delegate", post(grant))
        .route("/agents/{beam_id}/delegations", get(list))
        .route("/agents/{beam_id}/delegations/{id}", delete(revoke))
}

async fn grant(
    State(face): State<BeamFace>,
    PathBeamId(grantor): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (_, body) = face.receive_stored(request).await?;
    super::agents::known(&face, grantor.as_str()).await?;
    let body = receive::json_object(&body)?;
    let request = delegation_request(&body).ok_or_else(|| {
        let text = "grantee_beam_id, scope, expires_at and signature are required";
        BeamProblemResponse::new(Code::InvalidDelegation, text)
    })?;
    let delegation = face.beam.delegate(grantor.as_str(), &request).await?;
    Ok(json_response(
        StatusCode::CREATED,
        &view(grantor.as_str(), &delegation),
    ))
}

fn delegation_request(body: &BeamValue) -> Option<DelegationRequest> {
    let expires_at = body.get("expires_at").and_then(BeamValue::as_f64);
    Some(DelegationRequest {
        grantee: body_fields::text(body, &["grantee_beam_id"])?,
        scope: body_fields::text(body, &["scope"])?,
        expires_at: expires_at.filter(|number| number.is_finite())?,
        signature: body_fields::text(body, &["signature"])?,
    })
}

async fn list(
    State(face): State<BeamFace>,
    PathBeamId(grantor): PathBeamId,
) -> Result<Response, BeamProblemResponse> {
    let granted = face.beam.delegations_of(grantor.as_str()).await?;
    let granted = granted.iter();
    let granted: Vec<_> = granted.map(|one| view(grantor.as_str(), one)).collect();
    let body = json!({"total": granted.len(), "delegations": granted});
    Ok(json_response(StatusCode::OK, &body))
}

async fn revoke(
    State(face): State<BeamFace>,
    PathText((grantor, id)): PathText<(String, String)>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (_, body) = face.receive_stored(request).await?;
    let grantor = receive::beam_id(&grantor)?;
    let id = id.parse().ok().filter(|id: &u64| *id > 0);
    let id = id.ok_or_else(|| {
        BeamProblemResponse::new(Code::InvalidDelegation, "Invalid delegation identifier")
    })?;
    super::agents::known(&face, grantor.as_str()).await?;
    let body = receive::json_object(&body)?;
    let signature = body_fields::text(&body, &["signature"]).ok_or_else(|| {
        BeamProblemResponse::new(Code::CallbackSignature, "signature is required")
    })?;
    let beam = &face.beam;
    beam.revoke_delegation(grantor.as_str(), id, &signature)
        .await?;
    let body = json!({"revoked": true, "id": id});
    Ok(json_response(StatusCode::OK, &body))
}

fn view(grantor: &str, delegation: &Delegation) -> Value {
    json!({
        "id": delegation.id,
        "grantorBeamId": grantor,
        "granteeBeamId": delegation.grantee,
        "scope": delegation.scope,
        "createdAt": delegation.created_at,
        "expiresAt": delegation.expires_at,
        "revoked": delegation.revoked_at.is_some(),
    })
}
