//! Jobs: details, tree, lists, logs, cancel and retry.

use crate::runtime::parse_job_id;
use crate::runtime::reads::TREE_MAX;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use consign_engine::Error;
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::IntentId;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ApiState;
use super::api_error::{ApiError, ok};
use super::auth::{AuthorizedCaller, JobsRead, JobsWrite, PluginRead};
use super::query::{ApiQuery, Segments};
use super::views::jobs as views;
use super::views::service::plugin_facts;
use consign_web::body;
use consign_web::body_budget::BodySender;

/// Set if the tree has more jobs than the list.
const MORE: HeaderName = HeaderName::from_static("x-more");
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;
pub(super) const REASON_CHARS_MAX: usize = 500;
const CANCELLABLE: &str = "only one that is queued or running can be cancelled";
const RETRIABLE: &str = "only one that is failed, timed_out or dead can be retried; start others again with `plugin run` or `pipeline run`";
pub(super) const FACTS_DEFAULT: usize = 20;
pub(super) const FACTS_MAX: usize = 200;

pub(super) async fn job(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    let job = state.runtime.job(parse(&id)?).await?;
    Ok(ok(&views::job(&job.ok_or_else(unknown)?)))
}

pub(super) async fn tree(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    let (id, runtime) = (parse(&id)?, state.runtime.clone());
    let read = async move {
        let tree = runtime.job_tree(id, TREE_MAX).await?;
        let tree = tree.ok_or_else(unknown)?;
        let mut response = ok(&Value::Array(views::jobs(&tree.jobs)));
        if tree.more {
            // The body is a list, so the header is the only place for it.
            let headers = response.headers_mut();
            headers.insert(MORE, HeaderValue::from_static("true"));
        }
        Ok(response)
    };
    state.runtime.run_blocking(read).await
}

pub(super) async fn inspect(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    let (id, runtime) = (parse(&id)?, state.runtime.clone());
    let read = async move {
        let inspected = runtime.inspect(id).await?;
        Ok(ok(&views::inspection(&inspected.ok_or_else(unknown)?)))
    };
    state.runtime.run_blocking(read).await
}

pub(super) async fn list(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let jobs = state.runtime.jobs(&params.jobs()?).await?;
    Ok(ok(&views::job_list(&jobs)))
}

pub(super) async fn logs(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let (filter, runtime) = (params.logs()?, state.runtime.clone());
    let read = async move { Ok(ok(&views::log_page(&runtime.job_logs(&filter).await?))) };
    state.runtime.run_blocking(read).await
}

pub(super) async fn queue(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let queue = state.runtime.queue(params.queue_limit()?).await?;
    Ok(ok(&json!({"jobs": views::jobs(&queue)})))
}

pub(super) async fn run(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments(id): Segments<String>,
) -> Result<Response, ApiError> {
    let runtime = state.runtime.clone();
    let read = async move {
        let run = runtime.pipeline_run(&id).await?;
        let unknown = || ApiError::not_found("no pipeline run has this id");
        let run = run.ok_or_else(unknown)?;
        Ok(ok(&views::pipeline_run(&run, &runtime.program())))
    };
    state.runtime.run_blocking(read).await
}

pub(super) async fn facts(
    State(state): State<ApiState>,
    _: AuthorizedCaller<PluginRead>,
    Segments(plugin): Segments<String>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let limit = params.limit(FACTS_DEFAULT, FACTS_MAX)?;
    let program = state.runtime.program();
    if !program.is_known(&plugin) {
        return Err(ApiError::not_found(program.missing_plugin(&plugin)));
    }
    let fact_type = params.get("fact_type");
    let facts = state.runtime.facts(&plugin, fact_type, limit).await?;
    Ok(ok(&plugin_facts(&plugin, &facts)))
}

pub(super) async fn cancel(
    State(state): State<ApiState>,
    allowed: AuthorizedCaller<JobsWrite>,
    Segments(id): Segments<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let id = parse(&id)?;
    let reason = reason(body, allowed.body_sender(), "cancelled on request").await?;
    let cancelled = state.runtime.cancel(id, &reason).await;
    check_transition(&state, id, cancelled, CANCELLABLE).await?;
    job_status(&state, id).await
}

pub(super) async fn retry(
    State(state): State<ApiState>,
    allowed: AuthorizedCaller<JobsWrite>,
    Segments(id): Segments<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let id = parse(&id)?;
    let reason = reason(body, allowed.body_sender(), "retried on request").await?;
    let retried = state.runtime.retry(id, &reason).await;
    check_transition(&state, id, retried, RETRIABLE).await?;
    job_status(&state, id).await
}

/// The error names the current state of the job and the states in which the operation is allowed.
async fn check_transition(
    state: &ApiState,
    id: IntentId,
    done: Result<(), Error>,
    needed: &str,
) -> Result<(), ApiError> {
    let Err(Error::Refused(Refusal::IllegalState)) = done else {
        return Ok(done?);
    };
    let job = state.runtime.job(id).await?.ok_or_else(unknown)?;
    let status = job.status.as_str();
    let error = format!("the job is {status}; {needed}");
    Err(ApiError::new(Code::InvalidState, error))
}

async fn job_status(state: &ApiState, id: IntentId) -> Result<Response, ApiError> {
    let job = state.runtime.job(id).await?.ok_or_else(unknown)?;
    Ok(ok(
        &json!({"job_id": job.job_id, "status": job.status.as_str()}),
    ))
}

fn parse(id: &str) -> Result<IntentId, ApiError> {
    parse_job_id(id).ok_or_else(unknown)
}

fn unknown() -> ApiError {
    ApiError::not_found("no job has this id")
}

#[derive(Default, Deserialize)]
struct ReasonIn {
    reason: Option<String>,
}

async fn reason(body: Body, sender: BodySender, default: &str) -> Result<String, ApiError> {
    let body = body::receive(body, BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
    let given: ReasonIn = if body.is_empty() {
        ReasonIn::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| {
            ApiError::bad(format!("the body is not an object with a reason: {error}"))
        })?
    };
    let reason = given.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.unwrap_or_else(|| default.to_owned());
    if reason.chars().count() > REASON_CHARS_MAX {
        let error = format!("a reason has at most {REASON_CHARS_MAX} characters");
        return Err(ApiError::bad(error));
    }
    Ok(reason)
}
