//! Starts commands and pipelines, and waits for synchronous pipelines.

use std::time::Instant;

use crate::nesting::{LEVELS_MAX, is_too_deep};
use crate::plugin::command::CommandAccess;
use crate::program::Program;
use crate::runtime::{Enqueued, job_id};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use consign_kernel::error::Code;
use consign_kernel::plant::{self, Plant};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::api_error::{ApiError, answer, ok};
use super::auth::{AuthorizedCaller, PluginRead, PluginWrite};
use super::query::{ApiQuery, Segments};
use super::views::jobs::tree_outcome;
use super::{ApiState, until_disconnected, until_draining};
use consign_web::body;
use consign_web::body_budget::BodySender;
use consign_web::presence::Presence;

/// The event type of a direct call of `handle`.
const EVENT_TYPE: &str = "api.trigger";
/// Larger than the maximum baggage, so that oversized baggage gets its own error.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

pub(super) async fn plugin(
    State(state): State<ApiState>,
    allowed: AuthorizedCaller<PluginRead>,
    Segments((plugin, command)): Segments<(String, String)>,
    body: Body,
) -> Result<Response, ApiError> {
    let program = state.runtime.program();
    if program.plugin(&plugin).is_none() {
        return Err(ApiError::not_found(program.missing_plugin(&plugin)));
    }
    let Some(known) = program.command(&plugin, &command) else {
        let error = program.missing_command(&plugin, &command);
        return Err(ApiError::not_found(error));
    };
    if known.access == CommandAccess::Write && !plant::on(Plant::ReaderWrites) {
        allowed.needs("plugin:rw")?;
    }
    let payload = payload(body, allowed.body_sender()).await?;
    let enqueued = state
        .runtime
        .run_plugin(&plugin, &command, payload, EVENT_TYPE, state.submitter())
        .await?;
    let body = json!({
        "job_id": job_id(enqueued.id), "status": "queued", "plugin": plugin, "command": command,
    });
    Ok(answer(StatusCode::ACCEPTED, &body))
}

pub(super) async fn pipeline(
    State(state): State<ApiState>,
    allowed: AuthorizedCaller<PluginWrite>,
    Segments(name): Segments<String>,
    params: ApiQuery,
    presence: Option<Extension<Presence>>,
    body: Body,
) -> Result<Response, ApiError> {
    let forced = params.flag("async")?;
    let program = state.runtime.program();
    let unknown = || ApiError::not_found(Program::missing_pipeline(&name));
    let pipeline = program.router().pipeline(&name).ok_or_else(unknown)?;
    let payload = payload(body, allowed.body_sender()).await?;
    if forced || !pipeline.synchronous {
        let jobs = start(&state, &name, payload).await?;
        let ids: Vec<String> = jobs.iter().map(|job| job_id(job.id)).collect();
        let mut body =
            json!({"job_id": ids[0], "status": "queued", "plugin": "pipeline", "command": name});
        if ids.len() > 1 {
            body["job_ids"] = ids.into();
        }
        return Ok(answer(StatusCode::ACCEPTED, &body));
    }
    let entries = pipeline.graph.entries().count();
    if entries > 1 {
        let error = format!(
            "the pipeline starts with {entries} jobs, but a synchronous call waits for one; use ?async=true"
        );
        return Err(ApiError::bad(error));
    }
    let full =
        "the maximum number of callers waits for a pipeline already; try again, or use ?async=true";
    // Before anything is queued, so that a refused caller has started nothing.
    let _permit = state
        .runtime
        .wait_permit()
        .ok_or_else(|| ApiError::busy(full))?;
    let api = &program.config().api;
    let patience = pipeline.timeout.min(api.max_sync_timeout);
    let began = Instant::now();
    let jobs = start(&state, &name, payload).await?;
    let root = jobs[0].id;
    let mut draining = state.options.draining.clone();
    let over = tokio::select! {
        over = state.runtime.wait_for_tree(root, patience) => over?,
        () = until_draining(&mut draining) => false,
        () = until_disconnected(presence) => false,
    };
    if !over {
        let body = json!({
            "job_id": job_id(root), "status": "running", "timeout_exceeded": true,
            "message": "the pipeline takes longer than this call waits; it continues, poll its job",
        });
        return Ok(answer(StatusCode::ACCEPTED, &body));
    }
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let runtime = state.runtime.clone();
    let read = async move {
        let whole = runtime.tree_outcome(root).await?;
        let gone = || ApiError::not_found("the job has just been removed");
        Ok(ok(&tree_outcome(&whole.ok_or_else(gone)?, took)))
    };
    state.runtime.run_blocking(read).await
}

/// Returns at least one job.
async fn start(state: &ApiState, name: &str, payload: Value) -> Result<Vec<Enqueued>, ApiError> {
    let jobs = state
        .runtime
        .run_pipeline(name, payload, state.submitter())
        .await?;
    if jobs.is_empty() {
        let error = format!("the pipeline `{name}` starts no job");
        return Err(ApiError::new(Code::PipelineWithoutJobs, error));
    }
    Ok(jobs)
}

/// The `payload` of a body; null if there is none.
async fn payload(body: Body, sender: BodySender) -> Result<Value, ApiError> {
    let body = body::receive(body, BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    let parsed: Map<String, Value> = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad(format!("the body is not a JSON object: {error}")))?;
    match parsed.get("payload") {
        None | Some(Value::Null) => Ok(Value::Null),
        Some(payload) if is_too_deep(payload) => {
            let error = format!("payload is nested more than {LEVELS_MAX} levels deep");
            Err(ApiError::bad(error))
        }
        Some(payload @ Value::Object(_)) => Ok(payload.clone()),
        Some(_) => Err(ApiError::bad("payload must be an object")),
    }
}
