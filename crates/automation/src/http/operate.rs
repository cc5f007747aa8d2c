//! Schedules, breakers and reloads, for operators.

use crate::runtime::{ReloadError, ScheduleError, job_id};
use axum::extract::State;
use axum::response::Response;
use consign_engine::Error;
use consign_kernel::error::{Code, Refusal};
use serde_json::json;

use super::api_error::{ApiError, ok};
use super::auth::{AuthorizedCaller, JobsRead, SystemWrite};
use super::query::{ApiQuery, Segments};
use super::{ApiState, loader, views};

pub(super) const COMMAND_DEFAULT: &str = "poll";
pub(super) const TRANSITIONS_DEFAULT: usize = 20;
pub(super) const TRANSITIONS_MAX: usize = 200;

pub(super) async fn schedules(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
) -> Result<Response, ApiError> {
    let schedules = state.runtime.schedules().await?;
    Ok(ok(&views::operate::schedules(&schedules)))
}

/// The schedules with their open jobs, under the path that older clients use.
pub(super) async fn scheduler_jobs(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
) -> Result<Response, ApiError> {
    let runtime = state.runtime.clone();
    let read = async move {
        let schedules = runtime.scheduler_jobs().await?;
        Ok(ok(&views::service::scheduler_jobs(&schedules)))
    };
    state.runtime.run_blocking(read).await
}

/// One configured schedule; removed ones appear only in the list.
pub(super) async fn schedule(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments((plugin, id)): Segments<(String, String)>,
) -> Result<Response, ApiError> {
    let schedules = state.runtime.schedules().await?;
    let mut configured = schedules
        .iter()
        .filter(|schedule| !schedule.mode.is_empty());
    let found = configured.find(|schedule| schedule.plugin == plugin && schedule.schedule_id == id);
    let missing = || ScheduleError::NoSchedule {
        plugin: plugin.clone(),
        id: id.clone(),
    };
    let found = found.ok_or_else(missing)?;
    Ok(ok(&views::operate::schedule(found)))
}

pub(super) async fn pause(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemWrite>,
    Segments((plugin, id)): Segments<(String, String)>,
) -> Result<Response, ApiError> {
    state.runtime.pause_schedule(&plugin, &id).await?;
    schedule_response(&state, &plugin, &id).await
}

pub(super) async fn resume(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemWrite>,
    Segments((plugin, id)): Segments<(String, String)>,
) -> Result<Response, ApiError> {
    state.runtime.resume_schedule(&plugin, &id).await?;
    schedule_response(&state, &plugin, &id).await
}

pub(super) async fn run(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemWrite>,
    Segments((plugin, id)): Segments<(String, String)>,
) -> Result<Response, ApiError> {
    let submitter = state.submitter();
    let enqueued = state.runtime.run_schedule(&plugin, &id, submitter).await?;
    let job_id = job_id(enqueued.id);
    let body = json!({"plugin": plugin, "schedule_id": id, "job_id": job_id, "status": "queued"});
    Ok(ok(&body))
}

async fn schedule_response(state: &ApiState, plugin: &str, id: &str) -> Result<Response, ApiError> {
    let schedules = state.runtime.schedules().await?;
    let found = schedules
        .iter()
        .find(|schedule| schedule.plugin == plugin && schedule.schedule_id == id);
    Ok(ok(&json!(found.map(views::operate::schedule))))
}

pub(super) async fn breaker(
    State(state): State<ApiState>,
    _: AuthorizedCaller<JobsRead>,
    Segments(plugin): Segments<String>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let command = params.get("command").unwrap_or(COMMAND_DEFAULT);
    let limit = params.limit(TRANSITIONS_DEFAULT, TRANSITIONS_MAX)?;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let breaker = state.runtime.breaker(&plugin, command, limit).await?;
    let breaker = breaker.ok_or_else(no_breaker)?;
    Ok(ok(&views::operate::breaker(&breaker)))
}

pub(super) async fn reset(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemWrite>,
    Segments(plugin): Segments<String>,
    params: ApiQuery,
) -> Result<Response, ApiError> {
    let command = params.get("command").unwrap_or(COMMAND_DEFAULT);
    // A reset must not create a breaker that does not exist.
    let known = state.runtime.breaker(&plugin, command, 1).await?;
    known.ok_or_else(no_breaker)?;
    state.runtime.reset_breaker(&plugin, command).await?;
    let breaker = state.runtime.breaker(&plugin, command, 1).await?;
    Ok(ok(&json!(breaker.as_ref().map(views::operate::breaker))))
}

fn no_breaker() -> ApiError {
    ApiError::not_found("no such plugin or command exists")
}

pub(super) async fn reload(
    State(state): State<ApiState>,
    _: AuthorizedCaller<SystemWrite>,
) -> Result<Response, ApiError> {
    let reloaded = state.options.loader.reload(&state.runtime).await?;
    let at = state.runtime.now();
    let message = if reloaded.unfinished {
        "the configuration was reloaded; follow-up work failed and will be retried, see the log"
    } else {
        "the configuration was reloaded"
    };
    Ok(ok(&json!({
        "status": "ok", "reloaded_at": format!("{at:.9}"), "message": message,
        "added": reloaded.added, "removed": reloaded.removed, "left_out": reloaded.left_out, "ended_jobs": reloaded.ended_jobs,
        "unfinished": reloaded.unfinished,
    })))
}

impl From<ScheduleError> for ApiError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::NoSchedule { .. } => Self::not_found(error.to_string()),
            ScheduleError::Engine(Error::Refused(Refusal::NotFound)) => {
                let error = "the schedule is not planned yet; try again shortly";
                Self::new(Code::ScheduleNotPlanned, error)
            }
            ScheduleError::Engine(error) => error.into(),
        }
    }
}

impl From<loader::Error> for ApiError {
    fn from(error: loader::Error) -> Self {
        match error {
            loader::Error::Unusable(_) | loader::Error::Refused(ReloadError::NeedsRestart(_)) => {
                Self::new(Code::ReloadRefused, error.to_string())
            }
            loader::Error::Refused(ReloadError::Engine(error)) => error.into(),
        }
    }
}
