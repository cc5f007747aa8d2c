//! The HTTP face of automations: starting jobs and pipelines, looking at them, and the webhooks that start them from outside.
//!
//! Handlers are thin: what may be asked is checked here, what is answered is made by the runtime's `reads`, and nothing is kept
//! but the places of those who wait. The same router serves the API's port, where a token says what its bearer may do, and the
//! control socket, whose one token allows everything.

mod about;
mod checks;
mod cors;
mod events;
mod jobs;
mod listener_policy;
pub mod listeners;
pub mod loader;
mod openapi;
mod operate;
mod query;
mod reject;
mod right;
mod trigger;
pub mod webhooks;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use consign_automation::runtime::{Runtime, SubmittedBy};
use consign_engine::Slots;
use tokio::sync::{Semaphore, watch};

use crate::web::presence::Presence;
use crate::web::request_id::RequestId;

use loader::Loader;
use reject::Reject;
use right::{Allowed, Anybody};

/// Event streams that may be open at once.
const STREAMS_MAX: usize = 100;
/// So that one reader does not closed out the others.
const STREAMS_PER_TOKEN_MAX: usize = 10;

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever presents one of the configuration's tokens, within its scopes.
    Tokens,
    /// Everybody who gets here may do everything: something else keeps the others out.
    Local,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    /// Turns true when the process is about to end: streams and waiting callers are let go.
    pub draining: watch::Receiver<bool>,
    /// The program that runs, for those who check its health.
    pub binary_path: Option<PathBuf>,
    pub loader: Loader,
}

/// What every handler holds.
#[derive(Clone)]
struct Face {
    runtime: Runtime,
    options: Arc<Options>,
    streams: Arc<Semaphore>,
    streams_of_token: Slots<[u8; 32]>,
}

impl Face {
    fn new(runtime: Runtime, options: Options) -> Self {
        Self {
            runtime,
            options: Arc::new(options),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            streams_of_token: Slots::default(),
        }
    }

    /// The control socket is the way of the command line.
    fn submitter(&self) -> SubmittedBy {
        match self.options.access {
            Access::Tokens => SubmittedBy::Api,
            Access::Local => SubmittedBy::Cli,
        }
    }
}

impl fmt::Debug for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("automation::Face")
    }
}

pub fn router(runtime: Runtime, options: Options) -> Router {
    let face = Face::new(runtime, options);
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
        .layer(from_fn_with_state(face.clone(), cors::answer))
        .with_state(face)
}

/// The error body for a request whose head cannot be read.
pub const UNREADABLE_BODY: &str =
    r#"{"error":"the request line or its headers are malformed or too large"}"#;

/// The answer to a request whose handler panicked.
pub fn on_panic(id: Option<&RequestId>) -> Response {
    let id = id.map(RequestId::as_str).unwrap_or_default();
    Reject::internal(format!("internal error; tell the operator request id {id}")).into_response()
}

/// The answer to an address that presented too many wrong credentials.
pub fn on_too_many_failures(_path: &str) -> Response {
    Reject::too_many_failures().into_response()
}

/// As everywhere else, the token is asked for first: a stranger learns nothing of what exists.
async fn unknown_path(_: Allowed<Anybody>) -> Reject {
    Reject::not_found("there is nothing at this path")
}

async fn wrong_method(_: Allowed<Anybody>) -> Reject {
    Reject::wrong_method()
}

/// Returns when the process is about to end.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // An error means that nobody can say so any more, which is the end as well.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Returns when the caller has left, where that can be seen.
async fn hung_up(presence: Option<Extension<Presence>>) {
    match presence {
        Some(Extension(presence)) => presence.hung_up().await,
        None => std::future::pending().await,
    }
}
