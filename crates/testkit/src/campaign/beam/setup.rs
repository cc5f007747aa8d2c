//! The settings and the agents of a server in a campaign.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::CampaignAgents;
use crate::beam_agents::{INTENT_TYPES, TestAgent};
use crate::process::{Http, Options, Reply};

/// How long the server waits for a result.
pub(super) const RESULT_TIMEOUT: Duration = Duration::from_millis(1_200);
const VIEWER: &str = "viewer@example.com";
const RATE: &str = "1000000";
/// How long a request is repeated that needs what an earlier one stored.
const DEMAND_LIMIT: Duration = Duration::from_secs(10);
const TRY_AGAIN: Duration = Duration::from_millis(20);

pub(super) fn configure(
    options: Options,
    folder: &Path,
    agents: &CampaignAgents,
) -> io::Result<Options> {
    let bundle = folder.join("beam-identities.json");
    let bus_sender = &agents.bus_sender;
    let identity = json!({"bus-sender": {
        "beamId": bus_sender.beam_id,
        "publicKeyBase64": bus_sender.public_key(),
        "privateKeyBase64": bus_sender.private_key(),
    }});
    std::fs::write(&bundle, identity.to_string())?;
    let timeout_ms = RESULT_TIMEOUT.as_millis().to_string();
    Ok(options
        .env("BEAM_BUS_IDENTITY_PATH", &bundle.to_string_lossy())
        .env("BEAM_VIEWER_EMAILS", VIEWER)
        .env("BEAM_RATE_LIMIT_PER_MIN", RATE)
        .env("BEAM_BUS_RATE_LIMIT", RATE)
        .env("RELAY_TIMEOUT_MS", &timeout_ms)
        .env("BEAM_BUS_RETRY_INTERVAL_MS", "100")
        .env("BEAM_BUS_RETRY_TIME_SCALE", "0.002"))
}

pub(super) fn register(http: &mut Http, agents: &CampaignAgents) -> io::Result<()> {
    let all = [&agents.sender, &agents.bus_sender];
    for agent in all.into_iter().chain(&agents.recipients) {
        let body = registration(agent);
        demand(http, "/agents/register", &body)?;
    }
    for agent in &agents.recipients {
        for intent in INTENT_TYPES {
            let beam_id = &agent.beam_id;
            let rule = json!({"targetBeamId": beam_id, "intentType": intent, "allowedFrom": "*"});
            demand(http, "/acl", &rule)?;
        }
    }
    Ok(())
}

fn registration(agent: &TestAgent) -> Value {
    json!({
        "beamId": agent.beam_id,
        "displayName": agent.beam_id,
        "capabilities": ["test"],
        "publicKey": agent.public_key(),
    })
}

/// Posts until the server accepts: a defective server may answer before it has stored what the request needs.
fn demand(http: &mut Http, path: &str, body: &Value) -> io::Result<Value> {
    until_accepted(path, || http.post(path, body))
}

fn until_accepted(path: &str, mut send: impl FnMut() -> io::Result<Reply>) -> io::Result<Value> {
    let deadline = Instant::now() + DEMAND_LIMIT;
    loop {
        let reply = send()?;
        if (200..300).contains(&reply.status) {
            return Ok(reply.json());
        }
        if Instant::now() >= deadline {
            let (status, text) = (reply.status, reply.text());
            return Err(io::Error::other(format!(
                "{path} returned {status}: {text}"
            )));
        }
        thread::sleep(TRY_AGAIN);
    }
}

/// The session of an operator who may read traces, once the server has stored it. Without that a server that answers
/// before it commits would refuse the first check, and the campaign would end with an error and without a finding.
pub(super) fn viewer_session(http: &mut Http) -> io::Result<String> {
    let offered = demand(http, "/admin/auth/magic-link", &json!({"email": VIEWER}))?;
    let begun = demand(
        http,
        "/admin/auth/verify",
        &json!({"token": offered["token"]}),
    )?;
    let token = begun["token"].as_str().unwrap_or_default();
    let session = format!("Bearer {token}");
    let path = "/admin/auth/session";
    let headers = [("Authorization", session.as_str())];
    until_accepted(path, || http.send("GET", path, &headers, None))?;
    Ok(session)
}
