//! The routes for other directories: peers, agents, relayed intents and trust.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use super::access::{BeamAccess, client_address};
use super::federation_secret::FederationProof;
use super::problem_response::BeamProblemResponse;
use super::query::QueryText;
use super::receive::PathBeamId;
use super::response::{json_response, json_text};
use super::{BeamFace, receive};
use crate::beam_id::BeamId;
use crate::directory::records::BeamPeer;
use crate::federation::{
    AssertedTrust, NewPeer, PeerRegistrar, ResolvedAgent, TrustAssertion, is_same_directory,
};
use crate::frame::IntentFrame;
use crate::problem::BeamProblem;
use crate::text::BeamValue;
use crate::timestamp;

/// An intent that states no number has passed one directory.
const HOPS_DEFAULT: u32 = 1;

pub(super) fn routes() -> Router<BeamFace> {
    let peers = post(register).get(list).delete(remove);
    Router::new()
        .route("/federation/peers", peers)
        .route("/federation/relay", post(relay))
        .route("/federation/agents/{beam_id}", get(agent))
        .route("/federation/resolve", post(resolve))
        .route("/federation/trust", post(trust))
}

async fn register(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = request.into_parts();
    require_directory_or_admin(&face, &parts).await?;
    let access = BeamAccess::of(&face, &parts);
    let by = if access.local || access.is_admin(&face).await? {
        PeerRegistrar::Operator
    } else {
        PeerRegistrar::Directory
    };
    let request = Request::from_parts(parts, body);
    let body = receive::json_object(&receive::whole(request).await?.1)?;
    let text = |name: &str| body.get(name).and_then(BeamValue::as_str).map(str::trim);
    let (Some(directory_url), Some(public_key)) = (text("directoryUrl"), text("publicKey")) else {
        let text = "directoryUrl and publicKey are required";
        return Err(BeamProblemResponse::new(Code::InvalidPeer, text));
    };
    let new = NewPeer {
        directory_url: directory_url.to_owned(),
        public_key: public_key.to_owned(),
        trust_level: body.get("trustLevel").and_then(BeamValue::as_f64),
    };
    let peer = face.beam.register_peer(new, by).await?;
    Ok(json_response(StatusCode::CREATED, &peer_json(&peer)))
}

async fn list(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    require_directory_or_admin(&face, &parts).await?;
    let peers = face.beam.peers().await?;
    let peers: Vec<Value> = peers.iter().map(peer_json).collect();
    let body = json!({"total": peers.len(), "peers": peers});
    Ok(json_response(StatusCode::OK, &body))
}

/// Removes a peer. The secret does not allow it, because every peer has it.
async fn remove(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = receive::whole(request).await?;
    let access = BeamAccess::of(&face, &parts);
    if !access.local && !access.is_admin(&face).await? {
        let problem = BeamProblem::unauthorized();
        return Err(BeamProblemResponse::refused(problem, &access));
    }
    let query = QueryText::of(&parts);
    let url = query.text("directoryUrl").unwrap_or_default();
    if url.is_empty() {
        let text = "directoryUrl is required";
        return Err(BeamProblemResponse::new(Code::InvalidPeer, text));
    }
    if face.beam.remove_peer(url).await? {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    } else {
        let text = format!("Peer {url} not found");
        Err(BeamProblemResponse::new(Code::NotFound, text))
    }
}

/// Relays an intent of another directory. A request with the secret that cannot be served is 502, whatever the cause.
async fn relay(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    FederationProof::of(&face, request.headers(), request.extensions()).require()?;
    let (parts, body) = receive::whole(request).await?;
    let failed = |text: String| BeamProblemResponse::new(Code::FederationRelayError, text);
    let value = receive::json_object(&body).map_err(|refused| failed(refused.problem.text))?;
    let frame = IntentFrame::parse(value).map_err(|error| failed(error.to_string()))?;
    let hops = hop_count(&parts)
        .ok_or_else(|| failed("X-Beam-Hop-Count must be a positive number".to_owned()))?;
    let source = only_header(&parts, "x-beam-source-directory").unwrap_or_default();
    let address = client_address(&face, &parts);
    match face
        .beam
        .relay_from_peer(frame, source, hops, &address)
        .await
    {
        Ok(result) => Ok(json_text(StatusCode::OK, result)),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Describes an agent. Peers are asked only for directories and for programs on this machine: otherwise one request
/// of anybody would cause one to every peer.
async fn agent(
    State(face): State<BeamFace>,
    PathBeamId(beam_id): PathBeamId,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    let proof = FederationProof::of(&face, &parts.headers, &parts.extensions);
    if proof == FederationProof::Wrong || face.beam.settings().private {
        proof.require()?;
    }
    let may_ask = proof == FederationProof::Directory || BeamAccess::of(&face, &parts).local;
    let found = if QueryText::of(&parts).get("localOnly") == Some("1") {
        face.beam.resolve_local(&beam_id).await?
    } else if may_ask {
        face.beam.resolve(&beam_id).await?
    } else {
        face.beam.resolve_known(&beam_id).await?
    };
    agent_response(found, &beam_id)
}

async fn resolve(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let body = body_of_directory(&face, request).await?.1;
    let beam_id = beam_id_of(&body)?;
    let found = face.beam.resolve(&beam_id).await?;
    agent_response(found, &beam_id)
}

async fn trust(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = body_of_directory(&face, request).await?;
    let number = |name: &str| body.get(name).and_then(BeamValue::as_f64);
    let text = |name: &str| body.get(name).and_then(BeamValue::as_str).map(str::trim);
    let asserted = number("trustDelta")
        .map(AssertedTrust::Reduced)
        .or_else(|| number("assertedTrust").map(AssertedTrust::AtOrigin));
    let header = only_header(&parts, "x-beam-source-directory");
    let source = text("sourceDirectoryUrl").or(header);
    let (Some(asserted), Some(source)) = (asserted, source) else {
        let text = "beamId, sourceDirectoryUrl, and trust value are required";
        return Err(BeamProblemResponse::new(Code::InvalidBody, text));
    };
    let is_named = header.is_some_and(|header| is_same_directory(header, source));
    if !is_named && (header.is_some() || !BeamAccess::of(&face, &parts).local) {
        let text = "X-Beam-Source-Directory must name the directory of sourceDirectoryUrl";
        return Err(BeamProblemResponse::new(Code::Forbidden, text));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    let hops = number("hopCount").map_or(HOPS_DEFAULT, |hops| hops as u32);
    let assertion = TrustAssertion {
        beam_id: beam_id_of(&body)?,
        trust: asserted,
        source_url: source.to_owned(),
        origin_url: text("originDirectoryUrl").unwrap_or(source).to_owned(),
        hops,
    };
    let report = face.beam.report_trust(&assertion).await?;
    let body = json!({
        "beamId": assertion.beam_id,
        "effectiveTrust": report.effective,
        "sourceDirectoryUrl": report.source_url,
        "originDirectoryUrl": report.origin_url,
        "hopCount": report.hops,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Directories have the secret, administrators a session.
async fn require_directory_or_admin(
    face: &BeamFace,
    parts: &Parts,
) -> Result<(), BeamProblemResponse> {
    let proof = FederationProof::of(face, &parts.headers, &parts.extensions);
    let is_absent = proof == FederationProof::Absent;
    if is_absent && BeamAccess::of(face, parts).is_admin(face).await? {
        return Ok(());
    }
    proof.require()
}

/// The object in the body of a request that has the secret.
async fn body_of_directory(
    face: &BeamFace,
    request: Request,
) -> Result<(Parts, BeamValue), BeamProblemResponse> {
    FederationProof::of(face, request.headers(), request.extensions()).require()?;
    let (parts, body) = receive::whole(request).await?;
    Ok((parts, receive::json_object(&body)?))
}

fn beam_id_of(body: &BeamValue) -> Result<BeamId, BeamProblemResponse> {
    let text = body.get("beamId").and_then(BeamValue::as_str);
    let beam_id = text.and_then(|text| BeamId::parse(text.trim()).ok());
    let invalid = || BeamProblemResponse::new(Code::InvalidBeamId, "Invalid beamId format");
    beam_id.ok_or_else(invalid)
}

/// `None` if the header is not a number of at least one.
fn hop_count(parts: &Parts) -> Option<u32> {
    const NAME: &str = "x-beam-hop-count";
    if !parts.headers.contains_key(NAME) {
        return Some(HOPS_DEFAULT);
    }
    let text = only_header(parts, NAME)?.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hops = text.parse().ok().filter(|_| is_plain);
    hops.filter(|hops| *hops > 0)
}

fn only_header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let mut all = parts.headers.get_all(name).iter();
    let only = all.next().filter(|_| all.next().is_none())?;
    only.to_str().ok()
}

fn agent_response(
    found: Option<ResolvedAgent>,
    beam_id: &BeamId,
) -> Result<Response, BeamProblemResponse> {
    let Some(ResolvedAgent {
        agent,
        scope,
        directory_url,
    }) = found
    else {
        return Err(BeamProblem::no_agent(beam_id.as_str()).into());
    };
    let body = json!({
        "agent": {
            "beam_id": agent.beam_id,
            "org": agent.org,
            "display_name": agent.display_name,
            "capabilities": agent.capabilities,
            "public_key": agent.public_key,
            "trust_score": agent.trust_score,
            "verified": agent.verified,
            "created_at": time_text(agent.created_at),
            "last_seen": time_text(agent.last_seen),
        },
        "scope": scope.word(),
        "directoryUrl": directory_url,
    });
    Ok(json_response(StatusCode::OK, &body))
}

fn peer_json(peer: &BeamPeer) -> Value {
    json!({
        "id": peer.id,
        "directoryUrl": peer.directory_url,
        "publicKey": peer.public_key,
        "trustLevel": peer.trust_level,
        "status": peer.status,
        "createdAt": time_text(Some(peer.created_at)),
        "lastSeen": time_text(peer.last_seen),
        "syncedAt": time_text(peer.synced_at),
    })
}

fn time_text(ms: Option<i64>) -> Option<String> {
    ms.map(|ms| timestamp::format(Micros(ms.saturating_mul(1_000))))
}
