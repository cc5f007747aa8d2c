//! The service, its catalogue and its status.

use crate::program::Program;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use consign_engine::LedgerHealth;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::api_error::{ApiError, ok};
use super::auth::{AnyToken, AuthorizedCaller, JobsRead, PluginRead, SystemRead};
use super::query::Segments;
use super::views::{catalogue, service};
use super::{ApiAccess, ApiState};
use consign_web::proxy::Origin;
use consign_web::server::Peer;

pub(super) const DESCRIPTION: &str =
    "Runs plugins on schedules, webhooks, events and pipelines, from a durable queue.";

pub(super) async fn root(State(state): State<ApiState>) -> Response {
    let program = state.runtime.program();
    ok(&json!({
        "name": program.config().service.name,
        "description": DESCRIPTION,
        "uptime_seconds": state.runtime.uptime_seconds(),
        "discovery": {
            "health": "/healthz", "skills": "/skills", "plugins": "/plugins", "openapi": "/openapi.json",
            "ai_plugin": "/.well-known/ai-plugin.json",
        },
    }))
}

pub(super) async fn health(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut health = local_health(&state, peer, &headers).await?;
    let config_path = state.runtime.program().config().path.display().to_string();
    health.insert("config_path".to_owned(), config_path.into());
    if let Some(path) = &state.options.binary_path {
        let path = path.display().to_string();
        health.insert("binary_path".to_owned(), path.into());
    }
    let version = env!("CARGO_PKG_VERSION");
    health.insert("version".to_owned(), version.into());
    Ok(ok(&Value::Object(health)))
}

/// Allowed only from this machine; behind a proxy, for no caller.
pub(super) async fn local_health(
    state: &ApiState,
    peer: Option<Extension<Peer>>,
    headers: &HeaderMap,
) -> Result<Map<String, Value>, ApiError> {
    let is_local = |Extension(peer): Extension<Peer>| Origin::of(peer, headers, false).loopback;
    if state.options.access == ApiAccess::Tokens && !peer.is_some_and(is_local) {
        return Err(ApiError::forbidden("only for programs on this machine"));
    }
    if let Some(unhealthy_reason) = state.runtime.unhealthy_reason().await {
        return Err(ApiError::unhealthy(unhealthy_reason));
    }
    let ledger = state.runtime.ledger_health().await;
    if ledger != LedgerHealth::Healthy {
        return Err(ApiError::unhealthy(ledger.reason()));
    }
    Ok(service::health(&state.runtime.health().await?))
}

pub(super) async fn plugins(
    State(state): State<ApiState>,
    _: AuthorizedCaller<AnyToken>,
) -> Response {
    ok(&catalogue::plugin_list(&state.runtime.program()))
}

pub(super) async fn plugin(
    State(state): State<ApiState>,
    _: AuthorizedCaller<PluginRead>,
    Segments(name): Segments<String>,
) -> Result<Response, ApiError> {
    let program = state.runtime.program();
    let unknown = || ApiError::not_found(program.missing_plugin(&name));
    let details = catalogue::plugin_details(&program, &name);
    Ok(ok(&details.ok_or_else(unknown)?))
}

pub(super) async fn skills(
    State(state): State<ApiState>,
    _: AuthorizedCaller<AnyToken>,
) -> Response {
    ok(&catalogue::skills(&state.runtime.program()))
}

pub(super) async fn pipelines(
    State(state): State<ApiState>,
    _: AuthorizedCaller<PluginRead>,
) -> Response {
    ok(&catalogue::pipeline_list(&state.runtime.program()))
}

pub(super) async fn pipeline(
    State(state): State<ApiState>,
    _: AuthorizedCaller<PluginRead>,
    Segments(name): Segments<String>,
) -> Result<Response, ApiError> {
    let sheet = catalogue::pipeline_details(&state.runtime.program(), &name);
    let unknown = || ApiError::not_found(Program::missing_pipeline(&name));
    Ok(ok(&sheet.ok_or_else(unknown)?))
}

pub(super) async fn queue_figures(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
) -> Result<Response, ApiError> {
    let figures = state.runtime.queue_figures().await?;
    Ok(ok(&service::queue_figures(&figures)))
}

pub(super) async fn summary(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
) -> Result<Response, ApiError> {
    Ok(ok(&service::job_stats(&state.runtime.summary().await?)))
}

pub(super) async fn config(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemRead>,
) -> Response {
    ok(&catalogue::configuration(&state.runtime.program()))
}

pub(super) async fn status(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemRead>,
) -> Result<Response, ApiError> {
    Ok(ok(&service::status(&state.runtime.status().await?)))
}
