//! Access rules over HTTP. Programs on this machine may change them; from elsewhere, the target agent or an operator.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::error::Code;
use http::StatusCode;
use serde_json::{Value, json};

use super::access::BeamAccess;
use super::problem_response::BeamProblemResponse;
use super::receive::PathText;
use super::response::json_response;
use super::{BeamFace, agent_view, body_fields, receive};
use crate::acl::AclEntry;
use crate::directory::records::AclRule;
use crate::problem::BeamProblem;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/acl", post(add))
        .route("/acl/{name}", get(list).delete(remove))
}

async fn add(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    let body = receive::json_object(&body)?;
    let part = |names: &[&str]| body_fields::text(&body, names).unwrap_or_default();
    let entry = AclEntry::new(
        &part(&["targetBeamId", "target_beam_id"]),
        &part(&["intentType", "intent_type"]),
        &part(&["allowedFrom", "allowed_from"]),
    )
    .map_err(|_| {
        let text = "targetBeamId, intentType and allowedFrom are required";
        BeamProblemResponse::new(Code::InvalidAcl, text)
    })?;
    let access = BeamAccess::of(&face, &parts);
    check_may_change(&face, &access, Some(entry.target())).await?;
    let rule = face.beam.add_rule(&entry).await?;
    Ok(json_response(
        StatusCode::CREATED,
        &view(entry.target(), &rule),
    ))
}

async fn list(
    State(face): State<BeamFace>,
    PathText(name): PathText<String>,
) -> Result<Response, BeamProblemResponse> {
    let id = receive::beam_id(&name)?;
    let rules = face.beam.rules_of(id.as_str()).await?;
    let rules: Vec<_> = rules.iter().map(|rule| view(id.as_str(), rule)).collect();
    let body = json!({"total": rules.len(), "acl": rules});
    Ok(json_response(StatusCode::OK, &body))
}

async fn remove(
    State(face): State<BeamFace>,
    PathText(name): PathText<String>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = face.receive_stored(request).await?;
    let id = name.parse().ok().filter(|id: &u64| *id > 0);
    let id = id.ok_or_else(|| BeamProblemResponse::new(Code::InvalidAclId, "Invalid ACL id"))?;
    let target = face.beam.target_of_rule(id).await?;
    let access = BeamAccess::of(&face, &parts);
    check_may_change(&face, &access, target.as_deref()).await?;
    let is_removed = match &target {
        Some(target) => face.beam.remove_rule(target, id).await?,
        None => false,
    };
    if !is_removed {
        let text = format!("ACL id {id} not found");
        return Err(BeamProblemResponse::new(Code::NotFound, text));
    }
    let body = json!({"ok": true, "id": id});
    Ok(json_response(StatusCode::OK, &body))
}

/// Whether the request may change the rules of this agent. Only a valid credential shows from elsewhere that a rule does not
/// exist.
async fn check_may_change(
    face: &BeamFace,
    access: &BeamAccess,
    target: Option<&str>,
) -> Result<(), BeamProblemResponse> {
    if access.local || access.is_admin(face).await? {
        return Ok(());
    }
    let sender = access.agent(face).await?;
    let is_allowed = match (&sender, target) {
        (Some(sender), Some(target)) => sender.beam_id == target,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if is_allowed {
        return Ok(());
    }
    let problem = match sender {
        Some(_) => BeamProblem::new(
            Code::Forbidden,
            "An agent changes only its own access rules",
        ),
        None => BeamProblem::unauthorized(),
    };
    Err(BeamProblemResponse::refused(problem, access))
}

fn view(target: &str, rule: &AclRule) -> Value {
    json!({
        "id": rule.id,
        "target_beam_id": target,
        "intent_type": rule.intent_type,
        "allowed_from": rule.allowed_from,
        "created_at": agent_view::time(rule.created_at),
    })
}
