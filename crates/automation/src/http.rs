//! The HTTP face of automations: starts and inspects jobs and pipelines, and receives webhooks.
//!
//! Handlers are thin: they validate requests, the runtime's `reads` answer them with types of the domain, and [`views`] renders
//! these as JSON. The only state is the number of open streams. The same router serves the API port, where the scopes of a token apply, and the control socket, whose token allows
//! everything.

mod about;
mod api_error;
mod auth;
mod checks;
mod cors;
mod events;
mod jobs;
mod listener_policy;
pub mod listeners;
pub mod loader;
pub mod openapi;
mod operate;
mod query;
pub mod report;
mod trigger;
pub mod views;
pub mod webhooks;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::runtime::{Runtime, SubmittedBy};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use consign_engine::Slots;
use tokio::sync::{Semaphore, watch};

use consign_web::presence::Presence;
use consign_web::request_id::RequestId;

use api_error::ApiError;
use auth::{AnyToken, AuthorizedCaller};
use loader::Loader;

/// The maximum number of open event streams.
const STREAMS_MAX: usize = 100;
/// A limit per token, so that one reader cannot use all streams.
const STREAMS_PER_TOKEN_MAX: usize = 10;

/// How callers are authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAccess {
    /// By a token of the configuration, within its scopes.
    Tokens,
    /// Every caller may do everything, because the transport authenticates them.
    Local,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub access: ApiAccess,
    /// Becomes true when the process is about to stop: streams and waiting callers end.
    pub draining: watch::Receiver<bool>,
    /// The running binary, for health checks.
    pub binary_path: Option<PathBuf>,
    pub loader: Loader,
}

/// The state of every handler.
#[derive(Clone)]
struct ApiState {
    runtime: Runtime,
    options: Arc<Options>,
    streams: Arc<Semaphore>,
    streams_of_token: Slots<[u8; 32]>,
}

impl ApiState {
    fn new(runtime: Runtime, options: Options) -> Self {
        Self {
            runtime,
            options: Arc::new(options),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            streams_of_token: Slots::default(),
        }
    }

    /// Requests over the control socket come from the command line.
    fn submitter(&self) -> SubmittedBy {
        match self.options.access {
            ApiAccess::Tokens => SubmittedBy::Api,
            ApiAccess::Local => SubmittedBy::Cli,
        }
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("automation::Face")
    }
}

pub fn router(runtime: Runtime, options: Options) -> Router {
    let state = ApiState::new(runtime, options);
    Router::new()
        .route("/", get(about::root))
        .route("/healthz", get(about::health))
        .route("/plugins", get(about::plugins))
        .route("/plugin/{plugin}", get(about::plugin))
        .route("/plugin/{plugin}/openapi.json", get(openapi::of_plugin))
        .route("/plugin/{plugin}/{command}", post(trigger::plugin))
        .route("/pipelines", get(about::pipelines))
        .route(
            "/pipeline/{pipeline}",
            get(about::pipeline).post(trigger::pipeline),
        )
        .route("/pipeline-run/{id}", get(jobs::run))
        .route("/job/{id}", get(jobs::job))
        .route("/job/{id}/tree", get(jobs::tree))
        .route("/job/{id}/inspect", get(jobs::inspect))
        .route("/job/{id}/cancel", post(jobs::cancel))
        .route("/job/{id}/retry", post(jobs::retry))
        .route("/jobs", get(jobs::list))
        .route("/job-logs", get(jobs::logs))
        .route("/queue", get(jobs::queue))
        .route("/facts/{plugin}", get(jobs::facts))
        .route("/events", get(events::events))
        .route("/skills", get(about::skills))
        .route("/openapi.json", get(openapi::whole))
        .route("/.well-known/ai-plugin.json", get(openapi::ai_plugin))
        .route("/analytics/queue", get(about::queue_figures))
        .route("/analytics/summary", get(about::summary))
        .route("/config/view", get(about::config))
        .route("/schedules", get(operate::schedules))
        .route("/scheduler/jobs", get(operate::scheduler_jobs))
        .route("/schedule/{plugin}/{id}", get(operate::schedule))
        .route("/schedule/{plugin}/{id}/pause", post(operate::pause))
        .route("/schedule/{plugin}/{id}/resume", post(operate::resume))
        .route("/schedule/{plugin}/{id}/run", post(operate::run))
        .route("/breaker/{plugin}", get(operate::breaker))
        .route("/breaker/{plugin}/reset", post(operate::reset))
        .route("/system/status", get(about::status))
        .route("/system/reload", post(operate::reload))
        .route("/system/doctor", get(checks::doctor))
        .route("/system/selfcheck", get(checks::selfcheck))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(from_fn_with_state(state.clone(), cors::answer))
        .with_state(state)
}

/// The error body for a request whose head cannot be parsed.
pub const UNREADABLE_BODY: &str =
    r#"{"error":"the request line or its headers are malformed or too large"}"#;

/// The response after a panic of a handler.
pub fn on_panic(id: Option<&RequestId>) -> Response {
    let id = id.map(RequestId::as_str).unwrap_or_default();
    ApiError::internal(format!(
        "internal error; report request id {id} to the operator"
    ))
    .into_response()
}

/// The response to an address that presented too many wrong credentials.
pub fn on_too_many_failures(_path: &str) -> Response {
    ApiError::too_many_failures().into_response()
}

/// Requires a token first, so that an anonymous caller cannot probe paths.
async fn unknown_path(_: AuthorizedCaller<AnyToken>) -> ApiError {
    ApiError::not_found("this path does not exist")
}

async fn wrong_method(_: AuthorizedCaller<AnyToken>) -> ApiError {
    ApiError::wrong_method()
}

/// Completes when the process is about to stop.
async fn until_draining(draining: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, so the process is stopping as well.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Completes when the client disconnects, if that can be detected.
async fn until_disconnected(presence: Option<Extension<Presence>>) {
    match presence {
        Some(Extension(presence)) => presence.hung_up().await,
        None => std::future::pending().await,
    }
}
