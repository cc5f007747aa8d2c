//! What an operator sees of the clock and of breakers, and the hand that pauses, runs and resets.

use axum::extract::State;
use axum::response::Response;
use consign_automation::runtime::{ScheduleError, job_id};
use serde_json::json;

use super::Face;
use super::query::{Params, Segments};
use super::reject::{Reject, ok};
use super::right::{Allowed, JobsRead, SystemWrite};

const COMMAND: &str = "poll";
const TRANSITIONS_DEFAULT: usize = 20;
const TRANSITIONS_MAX: usize = 200;

pub(super) async fn schedules(
    State(face): State<Face>,
    _: Allowed<JobsRead>,
) -> Result<Response, Reject> {
    let schedules = face.runtime.schedules().await?;
    Ok(ok(&json!({ "schedules": schedules })))
}

pub(super) async fn schedule(
    State(face): State<Face>,
    _: Allowed<SystemWrite>,
    Segments((plugin, id, verb)): Segments<(String, String, String)>,
) -> Result<Response, Reject> {
    let mut done = json!({"plugin": plugin, "schedule_id": id});
    match verb.as_str() {
        "pause" => face.runtime.pause_schedule(&plugin, &id).await?,
        "resume" => face.runtime.resume_schedule(&plugin, &id).await?,
        "run" => {
            let enqueued = face.runtime.run_schedule(&plugin, &id).await?;
            done["job_id"] = job_id(enqueued.id).into();
            done["status"] = "queued".into();
        }
        _ => return Err(Reject::not_found("there is nothing at this path")),
    }
    Ok(ok(&done))
}

pub(super) async fn breaker(
    State(face): State<Face>,
    _: Allowed<JobsRead>,
    Segments(plugin): Segments<String>,
    params: Params,
) -> Result<Response, Reject> {
    let limit = params.limit(TRANSITIONS_DEFAULT, TRANSITIONS_MAX)?;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let command = params.get("command").unwrap_or(COMMAND);
    let found = face.runtime.breaker(&plugin, command, limit).await?;
    Ok(ok(&json!(
        found.ok_or_else(|| no_breaker(&plugin, command))?
    )))
}

pub(super) async fn reset_breaker(
    State(face): State<Face>,
    _: Allowed<SystemWrite>,
    Segments(plugin): Segments<String>,
    params: Params,
) -> Result<Response, Reject> {
    let command = params.get("command").unwrap_or(COMMAND);
    let found = face.runtime.breaker(&plugin, command, 1).await?;
    found.ok_or_else(|| no_breaker(&plugin, command))?;
    face.runtime.reset_breaker(&plugin, command).await?;
    Ok(ok(
        &json!({"plugin": plugin, "command": command, "state": "closed"}),
    ))
}

fn no_breaker(plugin: &str, command: &str) -> Reject {
    Reject::not_found(format!(
        "there is no command `{command}` of a plugin `{plugin}`"
    ))
}

impl From<ScheduleError> for Reject {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::NoSchedule { .. } => Self::not_found(error.to_string()),
            ScheduleError::Engine(error) => error.into(),
        }
    }
}
