//! Agents and keys as JSON.

use consign_kernel::ids::Micros;
use serde_json::{Value, json};

use super::BeamFace;
use crate::beam_id::BeamId;
use crate::did;
use crate::directory::records::{Agent, AgentKey};
use crate::directory::{AnswerStats, RevokedAgentKey};
use crate::timestamp;

/// The record of an agent. It never contains the hash of the API key.
pub(super) fn agent(face: &BeamFace, agent: &Agent) -> Value {
    let id = BeamId::parse(&agent.beam_id);
    let tier = agent.tier().word();
    json!({
        "beam_id": agent.beam_id,
        "org": id.as_ref().map(|id| id.org().to_owned()).ok(),
        "personal": id.is_ok_and(|id| id.is_personal()),
        "display_name": agent.display_name,
        "capabilities": agent.capabilities,
        "public_key": agent.active_key().map(|key| &key.public_key),
        "email": agent.email,
        "email_verified": agent.email_verified,
        "description": agent.description,
        "logo_url": agent.logo_url,
        "website": agent.website,
        "trust_score": agent.trust_score(face.beam.now_ms()),
        "verified": agent.is_verified(),
        "verification_tier": tier,
        "created_at": time(agent.created_at),
        "last_seen": time(agent.last_seen),
        "flagged": agent.flagged,
        "visibility": agent.visibility,
        "shield_config": null,
        "http_endpoint": agent.http_endpoint,
        "dh_public_key": agent.dh_public_key,
        "plan": "free",
        "did": did::of_agent(&agent.beam_id),
        "verificationTier": tier,
    })
}

/// The record with the keys.
pub(super) fn agent_with_keys(face: &BeamFace, shown: &Agent) -> Value {
    let mut view = agent(face, shown);
    view["keyState"] = key_state(shown);
    view
}

/// The record with whether the agent is connected.
pub(super) fn connected_agent(face: &BeamFace, shown: &Agent, is_connected: bool) -> Value {
    let mut view = agent(face, shown);
    view["connected"] = json!(is_connected);
    view
}

pub(super) fn key_state(agent: &Agent) -> Value {
    let view = |shown: &&AgentKey| key(&agent.beam_id, shown);
    let keys = agent.sorted_keys();
    let revoked = keys.iter().filter(|key| key.revoked_at.is_some());
    json!({
        "active": agent.active_key().as_ref().map(view),
        "revoked": revoked.map(view).collect::<Vec<_>>(),
        "keys": keys.iter().map(view).collect::<Vec<_>>(),
        "total": keys.len(),
    })
}

pub(super) fn revoked_key(revoked: &RevokedAgentKey) -> Value {
    key(&revoked.beam_id, &revoked.key)
}

fn key(beam_id: &str, key: &AgentKey) -> Value {
    let is_revoked = key.revoked_at.is_some();
    json!({
        "id": key.id,
        "beamId": beam_id,
        "publicKey": key.public_key,
        "createdAt": key.created_at,
        "revokedAt": key.revoked_at,
        "status": if is_revoked { "revoked" } else { "active" },
    })
}

pub(super) fn answer_stats(stats: AnswerStats) -> Value {
    json!({
        "received": stats.received,
        "responded": stats.responded,
        "avg_response_time_ms": stats.avg_response_time_ms,
    })
}

/// A time as text, from milliseconds.
pub(super) fn time(at_ms: i64) -> String {
    timestamp::format(Micros(at_ms.saturating_mul(1_000)))
}
