//! Figures for everyone, the fields of the health response, and metrics.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use consign_engine::{Error, Operator};
use consign_web::shell::MetricsText;
use http::StatusCode;
use serde_json::{Value, json};

use super::problem_response::BeamProblemResponse;
use super::response::json_response;
use super::{BeamFace, PROTOCOL};
use crate::lifecycle::state_word;
use crate::service::Beam;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new().route("/stats", get(stats))
}

async fn stats(State(face): State<BeamFace>) -> Result<Response, BeamProblemResponse> {
    let beam = &face.beam;
    let agents = beam.agent_counts().await?;
    // Only sums are shown.
    let counts = beam.state_counts(Operator::vouched()).await?;
    let intents: u64 = counts.iter().map(|count| count.intents).sum();
    let body = json!({
        "agents": agents.total,
        "intentsProcessed": intents,
        "uptime": beam.uptime().as_secs(),
        "waitlistSize": 0,
        "version": env!("CARGO_PKG_VERSION"),
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// The shell answers only while the ledger is healthy.
pub(super) fn health_fields(beam: &Beam) -> Vec<(&'static str, Value)> {
    vec![
        ("status", json!("ok")),
        ("protocol", json!(PROTOCOL)),
        ("connectedAgents", json!(beam.connected_agents())),
        (
            "timestamp",
            json!(crate::timestamp::format(beam.engine().wall())),
        ),
        ("uptimeSeconds", json!(beam.uptime().as_secs())),
        ("db", json!({"status": "ok"})),
    ]
}

pub(super) async fn write_metrics(
    beam: &Beam,
    operator: Operator,
    text: &mut MetricsText,
) -> Result<(), Error> {
    let counts = beam.state_counts(operator).await?;
    let name = "consign_beam_intents";
    text.family(name, "gauge", "Intents of the directory by state");
    for count in &counts {
        text.sample(name, &[("state", state_word(count.state))], count.intents);
    }
    let name = "consign_beam_messages";
    text.family(name, "gauge", "Messages of the bus by state");
    for count in &counts {
        text.sample(name, &[("state", state_word(count.state))], count.messages);
    }
    text.single(
        "consign_beam_connected_agents",
        "gauge",
        "Agents that are connected to this server",
        beam.inner.sockets.agent_count() as u64,
    );
    text.single(
        "consign_beam_feed_readers",
        "gauge",
        "Sockets that follow the intent feed of this server",
        beam.inner.sockets.feed_count() as u64,
    );
    beam.inner.counters.write(text);
    Ok(())
}
