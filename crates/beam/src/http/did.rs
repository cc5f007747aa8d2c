//! DID documents over HTTP.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use http::StatusCode;

use super::BeamFace;
use super::problem_response::BeamProblemResponse;
use super::public_limits::PublicRoute;
use super::receive::PathText;
use super::response::json_text;
use crate::did::{self, DidAgent, DidKey, DidSubject};
use crate::directory::records::Agent;
use crate::keys::BeamPublicKey;
use crate::text::BeamValue;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new().route("/did/{*did}", get(resolve))
}

async fn resolve(
    State(face): State<BeamFace>,
    PathText(text): PathText<String>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    face.charge(PublicRoute::Did, &request.into_parts().0)?;
    let directory_url = &face.beam.settings().directory_url;
    let document = match did::parse(&text) {
        Some(DidSubject::Agent(beam_id)) => {
            let agent = face.beam.agent(&beam_id).await?;
            agent.and_then(|agent| agent_document(&agent, directory_url))
        }
        Some(DidSubject::Key(key)) => Some(did::key_document(&key, directory_url)),
        None => None,
    };
    let document = document.ok_or_else(|| BeamProblemResponse::new(Code::NotFound, "Not found"))?;
    Ok(json_text(StatusCode::OK, document.to_text()))
}

fn agent_document(agent: &Agent, directory_url: &str) -> Option<BeamValue> {
    let sorted = agent.sorted_keys();
    let micros = |ms: i64| Micros(ms.saturating_mul(1_000));
    let keys: Vec<_> = sorted
        .iter()
        .filter_map(|key| {
            let public = BeamPublicKey::parse(&key.public_key).ok()?;
            Some((public, key.revoked_at.map(micros)))
        })
        .collect();
    let listed: Vec<_> = keys
        .iter()
        .map(|(key, revoked_at)| DidKey {
            key,
            revoked_at: *revoked_at,
        })
        .collect();
    // The document changes with the keys only.
    let changes = sorted
        .iter()
        .flat_map(|key| [Some(key.created_at), key.revoked_at]);
    let updated_at = changes.flatten().max();
    did::agent_document(&DidAgent {
        beam_id: &agent.beam_id,
        keys: &listed,
        directory_url,
        created_at: Some(micros(agent.created_at)),
        updated_at: updated_at.map(micros),
    })
}
