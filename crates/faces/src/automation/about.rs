//! What the service is, what it can run, and how it is doing.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use consign_automation::program::Program;
use consign_engine::LedgerHealth;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::query::Segments;
use super::reject::{Reject, ok};
use super::right::{Allowed, Anybody, JobsRead, PluginRead, SystemRead};
use super::{Access, Face};
use crate::web::proxy::Origin;
use crate::web::server::Peer;

pub(super) const DESCRIPTION: &str =
    "Runs plugins on schedules, webhooks, events and pipelines, from a durable queue.";

pub(super) async fn root(State(face): State<Face>) -> Response {
    let program = face.runtime.program();
    ok(&json!({
        "name": program.config().service.name,
        "description": DESCRIPTION,
        "uptime_seconds": face.runtime.uptime_seconds(),
        "discovery": {
            "health": "/healthz", "skills": "/skills", "plugins": "/plugins", "openapi": "/openapi.json",
            "ai_plugin": "/.well-known/ai-plugin.json",
        },
    }))
}

pub(super) async fn health(
    State(face): State<Face>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let mut health = local_health(&face, peer, &headers).await?;
    let config_path = face.runtime.program().config().path.display().to_string();
    health.insert("config_path".to_owned(), config_path.into());
    if let Some(path) = &face.options.binary_path {
        let path = path.display().to_string();
        health.insert("binary_path".to_owned(), path.into());
    }
    let version = env!("CARGO_PKG_VERSION");
    health.insert("version".to_owned(), version.into());
    Ok(ok(&Value::Object(health)))
}

/// For programs on this machine alone. Behind a proxy nobody is that.
pub(super) async fn local_health(
    face: &Face,
    peer: Option<Extension<Peer>>,
    headers: &HeaderMap,
) -> Result<Map<String, Value>, Reject> {
    let is_local = |Extension(peer): Extension<Peer>| Origin::of(peer, headers, false).loopback;
    if face.options.access == Access::Tokens && !peer.is_some_and(is_local) {
        return Err(Reject::forbidden("only for programs on this machine"));
    }
    if let Some(ailment) = face.runtime.ailment().await {
        return Err(Reject::unwell(ailment));
    }
    let ledger = face.runtime.ledger_health().await;
    if ledger != LedgerHealth::Healthy {
        return Err(Reject::unwell(ledger.reason()));
    }
    Ok(face.runtime.health().await?)
}

pub(super) async fn plugins(State(face): State<Face>, _: Allowed<Anybody>) -> Response {
    ok(&face.runtime.program().plugin_list())
}

pub(super) async fn plugin(
    State(face): State<Face>,
    _: Allowed<PluginRead>,
    Segments(name): Segments<String>,
) -> Result<Response, Reject> {
    let program = face.runtime.program();
    let unknown = || Reject::not_found(program.missing_plugin(&name));
    Ok(ok(&program.plugin_sheet(&name).ok_or_else(unknown)?))
}

pub(super) async fn skills(State(face): State<Face>, _: Allowed<Anybody>) -> Response {
    ok(&face.runtime.program().skills())
}

pub(super) async fn pipelines(State(face): State<Face>, _: Allowed<PluginRead>) -> Response {
    ok(&face.runtime.program().pipeline_list())
}

pub(super) async fn pipeline(
    State(face): State<Face>,
    _: Allowed<PluginRead>,
    Segments(name): Segments<String>,
) -> Result<Response, Reject> {
    let sheet = face.runtime.program().pipeline_sheet(&name);
    let unknown = || Reject::not_found(Program::missing_pipeline(&name));
    Ok(ok(&sheet.ok_or_else(unknown)?))
}

pub(super) async fn queue_figures(
    State(face): State<Face>,
    _: Allowed<JobsRead>,
) -> Result<Response, Reject> {
    Ok(ok(&face.runtime.queue_figures().await?))
}

pub(super) async fn summary(
    State(face): State<Face>,
    _: Allowed<JobsRead>,
) -> Result<Response, Reject> {
    Ok(ok(&face.runtime.summary().await?))
}

pub(super) async fn config(State(face): State<Face>, _: Allowed<SystemRead>) -> Response {
    ok(&face.runtime.program().shown())
}

pub(super) async fn status(
    State(face): State<Face>,
    _: Allowed<SystemRead>,
) -> Result<Response, Reject> {
    Ok(ok(&face.runtime.status().await?))
}
