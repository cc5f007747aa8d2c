//! Agents over HTTP: registration, lookup, lists, signs of life, and deletion.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::error::Code;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use super::access::{self, BeamAccess};
use super::problem_response::BeamProblemResponse;
use super::public_limits::PublicRoute;
use super::query::QueryText;
use super::receive::PathBeamId;
use super::response::json_response;
use super::{BeamFace, agent_view, body_fields, receive};
use crate::directory::records::Agent;
use crate::directory::{
    AgentFilter, PAGE_AGENTS_MAX, Registration, RegistrationInput, RegistrationOrigin,
};
use crate::problem::BeamProblem;
use crate::text::BeamValue;
use crate::trust::VerificationTier;

pub(super) const SEARCH_DEFAULT: u32 = 100;
pub(super) const BROWSE_DEFAULT: u32 = 20;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/agents/register", post(register))
        .route("/agents/search", get(search))
        .route("/agents/browse", get(browse))
        .route("/agents/stats", get(stats))
        .route("/agents/{beam_id}", get(lookup).delete(delete))
        .route("/agents/{beam_id}/heartbeat", post(heartbeat))
        .route("/directory/agents", get(public_agents))
}

async fn register(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    face.charge(PublicRoute::Register, &parts)?;
    let body = receive::json_object(&body)?;
    let guard = face.beam.inner.outbound.guard();
    let registration = Registration::check(registration_input(&body), guard)?;
    let access = BeamAccess::of(&face, &parts);
    let mut proof = access.proof(&face).await?;
    proof.signature = body_fields::timed_signature(&body);
    let from = RegistrationOrigin {
        is_local: access.local,
        is_stranger: face.is_stranger(&access).await?,
    };
    let registered = face
        .beam
        .register(&registration, &proof, from)
        .await
        .map_err(|problem| BeamProblemResponse::refused(problem, &access))?;
    let mut view = agent_view::agent_with_keys(&face, &registered.agent);
    view["apiKey"] = json!(registered.api_key.reveal());
    view["verification_email_sent"] = json!(false);
    Ok(json_response(StatusCode::CREATED, &view))
}

fn registration_input(body: &BeamValue) -> RegistrationInput {
    let text = |names: &[&str]| body_fields::text(body, names);
    let capabilities = body.get("capabilities").and_then(BeamValue::as_array);
    let capabilities = capabilities.and_then(|items| {
        let items = items.iter().map(BeamValue::as_str);
        let items = items.map(|item| item.map(|item| item.trim().to_owned()));
        items.collect()
    });
    RegistrationInput {
        beam_id: text(&["beamId", "beam_id"]),
        display_name: text(&["displayName", "display_name"]),
        capabilities,
        public_key: text(&["publicKey", "public_key"]),
        org: text(&["org"]),
        email: text(&["email"]),
        description: text(&["description"]),
        logo_url: text(&["logoUrl", "logo_url"]),
        verification_tier: text(&["verificationTier", "verification_tier"]),
        visibility: text(&["visibility"]),
        http_endpoint: text(&["httpEndpoint", "http_endpoint"]),
        dh_public_key: text(&["dhPublicKey", "dh_public_key"]),
    }
}

async fn lookup(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    face.charge(PublicRoute::Lookup, &request.into_parts().0)?;
    let agent = known(&face, id.as_str()).await?;
    let is_connected = face.beam.is_agent_connected(id.as_str()).await?;
    let mut view = agent_view::connected_agent(&face, &agent, is_connected);
    view["keyState"] = agent_view::key_state(&agent);
    let stats = face.beam.answer_stats(Some(id.as_str())).await?;
    view["intentStats"] = agent_view::answer_stats(stats);
    Ok(json_response(StatusCode::OK, &view))
}

pub(super) async fn known(face: &BeamFace, beam_id: &str) -> Result<Agent, BeamProblem> {
    let found = face.beam.agent(beam_id).await?;
    found.ok_or_else(|| BeamProblem::no_agent(beam_id))
}

async fn search(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    face.charge(PublicRoute::Search, &parts)?;
    let query = QueryText::of(&parts);
    let trust_min = query.decimal("minTrustScore");
    let trust_min = trust_min.filter(|least| (0.0..=1.0).contains(least));
    if query.get("minTrustScore").is_some() && trust_min.is_none() {
        let text = "minTrustScore must be a number between 0 and 1";
        return Err(invalid_param(text));
    }
    let text = "limit must be a positive integer";
    let limit = positive(&query, "limit", SEARCH_DEFAULT, text)?;
    let capabilities = query.text("capabilities").unwrap_or_default().split(',');
    let capabilities = capabilities.map(str::trim).filter(|text| !text.is_empty());
    let tier = query.text("verificationTier").map(str::to_lowercase);
    let filter = AgentFilter {
        org: query.text("org").map(str::to_owned),
        capabilities: capabilities.map(str::to_owned).collect(),
        trust_min,
        tier: tier.and_then(|word| VerificationTier::parse(&word)),
        text: query.text("q").map(str::to_lowercase),
        ..AgentFilter::default()
    };
    let list = face.beam.list_agents(&filter, 0, limit).await?;
    let agents = views(&face, &list.agents);
    let body = json!({"total": agents.len(), "agents": agents});
    Ok(json_response(StatusCode::OK, &body))
}

async fn browse(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    face.charge(PublicRoute::Browse, &parts)?;
    let query = QueryText::of(&parts);
    let text = "page and limit must be positive integers";
    let page = positive(&query, "page", 1, text)?;
    // The SDK asks for a page size under another name.
    let name = if query.get("limit").is_some() {
        "limit"
    } else {
        "pageSize"
    };
    let limit = positive(&query, name, BROWSE_DEFAULT, text)?.min(PAGE_AGENTS_MAX);
    let tier = query
        .text("verification_tier")
        .or_else(|| query.text("tier"));
    let tier = match tier.map(str::to_lowercase) {
        None => None,
        Some(word) => Some(VerificationTier::parse(&word).ok_or_else(|| {
            let text = "verification_tier is invalid";
            BeamProblemResponse::new(Code::InvalidVerificationTier, text)
        })?),
    };
    let verified_only = query.text("verified_only").map(str::to_lowercase);
    let filter = AgentFilter {
        capabilities: query
            .text("capability")
            .map(str::to_owned)
            .into_iter()
            .collect(),
        tier,
        verified_only: verified_only.is_some_and(|word| ["1", "true", "yes"].contains(&&*word)),
        ..AgentFilter::default()
    };
    let skipped = u64::from(page - 1) * u64::from(limit);
    let list = face.beam.list_agents(&filter, skipped, limit).await?;
    let body = json!({
        "agents": views(&face, &list.agents),
        "total": list.total,
        "page": page,
        "limit": limit,
        "pageSize": limit,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// The number of a parameter, which may be absent but not wrong.
fn positive(
    query: &QueryText,
    name: &str,
    default: u32,
    refusal: &str,
) -> Result<u32, BeamProblemResponse> {
    match query.get(name) {
        None => Ok(default),
        Some(_) => query.number(name).ok_or_else(|| invalid_param(refusal)),
    }
}

fn invalid_param(text: &str) -> BeamProblemResponse {
    BeamProblemResponse::new(Code::InvalidParam, text)
}

fn views(face: &BeamFace, agents: &[Agent]) -> Vec<Value> {
    let views = agents.iter().map(|agent| agent_view::agent(face, agent));
    views.collect()
}

async fn stats(State(face): State<BeamFace>) -> Result<Response, BeamProblemResponse> {
    let stats = face.beam.directory_stats().await?;
    let body = json!({
        "total_agents": stats.total_agents,
        "verified_agents": stats.verified_agents,
        "intents_processed": stats.intents_processed,
        "avg_response_time_ms": stats.avg_response_time_ms,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// The agents that want to be listed, at most as many as a page has.
async fn public_agents(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    face.charge(PublicRoute::Browse, &parts)?;
    check_may_list(&face, &parts).await?;
    let filter = AgentFilter {
        public_only: true,
        ..AgentFilter::default()
    };
    let list = face.beam.list_agents(&filter, 0, PAGE_AGENTS_MAX).await?;
    let agents = list.agents.iter();
    let agents: Vec<_> = agents
        .map(|agent| {
            let is_connected = face.beam.was_agent_connected(&agent.beam_id);
            agent_view::connected_agent(&face, agent, is_connected)
        })
        .collect();
    let body = json!({
        "agents": agents,
        "total": face.beam.agent_counts().await?.total,
        "listed": list.total,
    });
    Ok(json_response(StatusCode::OK, &body))
}

async fn check_may_list(face: &BeamFace, parts: &Parts) -> Result<(), BeamProblem> {
    if !face.beam.settings().private
        || access::is_federated(face, &parts.headers)
        || BeamAccess::of(face, parts).is_admin(face).await?
    {
        return Ok(());
    }
    Err(BeamProblem::new(
        Code::PrivateDirectory,
        "Directory is private",
    ))
}

async fn heartbeat(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = face.receive_stored(request).await?;
    let signature = body_fields::header_signature(&parts.headers);
    let agent = face.beam.heartbeat(id.as_str(), signature.as_ref()).await?;
    let view = agent_view::agent(&face, &agent);
    Ok(json_response(StatusCode::OK, &view))
}

async fn delete(
    State(face): State<BeamFace>,
    PathBeamId(id): PathBeamId,
    request: Request,
) -> Result<StatusCode, BeamProblemResponse> {
    let (parts, _) = face.receive_stored(request).await?;
    let access = BeamAccess::of(&face, &parts);
    let proof = access.proof(&face).await?;
    let deleted = face.beam.delete_agent(id.as_str(), &proof).await;
    deleted.map_err(|problem| BeamProblemResponse::refused(problem, &access))?;
    Ok(StatusCode::NO_CONTENT)
}
