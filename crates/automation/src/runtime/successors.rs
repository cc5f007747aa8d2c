//! Builds the jobs that follow from a job: what the router selects, with events and baggage.
//!
//! Nothing is written here; everything is added to the [`Consequences`] of the caller.

use consign_engine::{Engine, UnitOfWork};
use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::finish::RECOVERED;
use super::job::{Job, SubmittedBy};
use super::job_status::JobStatus;
use super::lifecycle::uuid;
use super::records;
use crate::pipeline::{Hook, JobEnd, NextJob, Notice, PipelinePosition, Producer, Routed};
use crate::plugin::request::{HANDLE, PluginEvent};
use crate::plugin::response::EmittedEvent;

/// The maximum number of successors of one job.
const CHILDREN_MAX: usize = 1_000;

/// What is committed together with the end of a job, or with its start.
#[derive(Default)]
pub(super) struct Consequences {
    pub(super) unit: UnitOfWork,
    /// The jobs to admit.
    pub(super) jobs: Vec<Job>,
}

/// The origin of an event, for the job that it creates.
#[derive(Clone)]
pub(super) struct EventSource {
    pub(super) kind: String,
    pub(super) plugin: String,
    pub(super) at: Timestamp,
    pub(super) id: String,
    pub(super) dedupe_key: Option<String>,
}

impl EventSource {
    /// Wraps a payload in the event that `handle` receives.
    pub(super) fn wrap(self, payload: Value) -> Value {
        let emitted = EmittedEvent {
            kind: self.kind,
            payload,
            dedupe_key: self.dedupe_key,
        };
        let stamped = PluginEvent::stamped(emitted, self.plugin, self.at, self.id);
        serde_json::to_value(stamped).expect("texts and JSON values always serialise")
    }
}

pub(super) fn producer(attempt: &Attempt) -> Producer<'_> {
    Producer {
        plugin: &attempt.job.plugin,
        context: &attempt.context,
        depth: attempt.job.depth,
        position: attempt.job.position.as_ref(),
    }
}

/// Adds the jobs that follow from the events of a job.
pub(super) fn queue(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    routed: Routed,
    source: impl Fn(&NextJob) -> EventSource,
    consequences: &mut Consequences,
) -> Result<(), AttemptFailure> {
    log_notices(attempt, &routed.notices);
    if routed.jobs.len() > CHILDREN_MAX {
        let count = routed.jobs.len();
        let error = format!("its events lead to {count} jobs; the maximum is {CHILDREN_MAX}");
        return Err(AttemptFailure::permanent(error));
    }
    let parent_context = &attempt.job.event_context_id;
    // Steps that one event enters together belong to one run.
    let mut instances: Vec<(String, Option<usize>, String)> = Vec::new();
    for next in routed.jobs {
        let source = source(&next);
        let instance_id = next.position.as_ref().map(|position| {
            if !next.enters {
                return attempt.job.instance_id.clone().unwrap_or_default();
            }
            let known = instances.iter().find(|(pipeline, event, _)| {
                *pipeline == position.pipeline && *event == next.event
            });
            if let Some((_, _, id)) = known {
                return id.clone();
            }
            let id = uuid(engine);
            instances.push((position.pipeline.clone(), next.event, id.clone()));
            id
        });
        let has_context = next.position.is_some() || parent_context.is_some();
        let context_id = has_context.then(|| uuid(engine));
        if let Some(id) = &context_id {
            let parent_id = parent_context.clone();
            let unit = &mut consequences.unit;
            write_context(id, &next, parent_id, ended.completed_at, unit);
        }
        // The hook depth is inherited, so that a chain of hooks stays bounded when events lead from one to the next.
        let hook_depth = if plant::on(Plant::ForgottenHooks) {
            0
        } else {
            attempt.job.hook_depth
        };
        consequences.jobs.push(Job {
            hook_depth,
            ..child_job(next, source, instance_id, context_id)
        });
    }
    Ok(())
}

/// Adds the first steps of a pipeline that is started by name.
pub(super) fn enter_pipeline(
    engine: &Engine,
    routed: Routed,
    source: &EventSource,
    submitted_by: SubmittedBy,
    consequences: &mut Consequences,
) {
    let instance_id = uuid(engine);
    for next in routed.jobs {
        let context_id = uuid(engine);
        let unit = &mut consequences.unit;
        write_context(&context_id, &next, None, source.at, unit);
        let (source, instance_id) = (source.clone(), Some(instance_id.clone()));
        consequences.jobs.push(Job {
            submitted_by,
            ..child_job(next, source, instance_id, Some(context_id))
        });
    }
}

/// Adds the pipelines whose trigger is the end of this job.
pub(super) fn queue_hooks(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    (status, end): (JobStatus, JobEnd),
    failure: Option<&AttemptFailure>,
    consequences: &mut Consequences,
) {
    let plugin = &attempt.job.plugin;
    let configured = attempt.program.plugin(plugin);
    let asked = configured.is_some_and(|plugin| plugin.notify_on_complete);
    let has_context = attempt.job.event_context_id.is_some();
    let payload = notification(attempt, ended, status, failure);
    let service = &attempt.program.config().service;
    let depth_max = u32::try_from(service.hook_max_depth).unwrap_or(u32::MAX);
    let depth = attempt.job.hook_depth;
    for hook in Hook::signals(end, asked, has_context) {
        let router = attempt.program.router();
        let routed = match router.hook(*hook, plugin, &payload, depth, depth_max) {
            Ok(routed) => routed,
            Err(error) => {
                tracing::error!(plugin, job_id = attempt.job_id(), %error, "a hook could not be started");
                continue;
            }
        };
        log_notices(attempt, &routed.notices);
        let instance_id = uuid(engine);
        for next in routed.jobs {
            let source = EventSource {
                kind: next.event_type.clone(),
                plugin: plugin.clone(),
                at: ended.completed_at,
                id: uuid(engine),
                dedupe_key: None,
            };
            let context_id = (!next.context.is_empty()).then(|| uuid(engine));
            if let Some(id) = &context_id {
                write_context(id, &next, None, source.at, &mut consequences.unit);
            }
            consequences.jobs.push(Job {
                submitted_by: SubmittedBy::Hook,
                hook_depth: depth + 1,
                ..child_job(next, source, Some(instance_id.clone()), context_id)
            });
        }
    }
}

/// The payload that a hook receives about the job.
fn notification(
    attempt: &Attempt,
    ended: &AttemptReport,
    status: JobStatus,
    failure: Option<&AttemptFailure>,
) -> Value {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let status = status.as_str();
    let mut payload = json!({
        "job_id": attempt.job_id(), "plugin": plugin, "command": command, "status": status,
    });
    if let AttemptEnd::Succeeded(response) = &ended.end {
        payload["result"] = response.result.as_str().into();
    }
    if let Some(failure) = failure {
        let line = format!("{plugin}/{command} {status}: {}", failure.error);
        payload["error"] = failure.error.as_str().into();
        payload["reason"] = failure.reason.into();
        if failure.reason == RECOVERED {
            payload["recovery"] = true.into();
        }
        payload["message"] = line.as_str().into();
        payload["text"] = line.into();
    }
    payload
}

fn write_context(
    id: &str,
    next: &NextJob,
    parent_id: Option<String>,
    created_at: Timestamp,
    unit: &mut UnitOfWork,
) {
    let position = next.position.as_ref();
    let context = records::EventContext {
        parent_id,
        pipeline_name: position.map(|position| position.pipeline.clone()),
        step_id: position.map(|position| position.step.clone()),
        accumulated: next.context.clone(),
        created_at,
    };
    unit.put(records::context_key(id), &context);
}

fn child_job(
    next: NextJob,
    source: EventSource,
    instance_id: Option<String>,
    event_context_id: Option<String>,
) -> Job {
    let (dedupe_key, source_event_id) = (source.dedupe_key.clone(), source.id.clone());
    let payload = if next.command == HANDLE {
        source.wrap(next.payload)
    } else {
        next.payload
    };
    Job {
        plugin: next.plugin,
        command: next.command,
        submitted_by: SubmittedBy::Route,
        payload,
        dedupe_key,
        source_event_id: Some(source_event_id),
        event_context_id,
        position: next.position,
        instance_id,
        schedule_id: None,
        serves: None,
        depth: next.depth,
        hook_depth: 0,
    }
}

fn log_notices(attempt: &Attempt, notices: &[Notice]) {
    let (plugin, job_id) = (&attempt.job.plugin, attempt.job_id());
    for notice in notices {
        match notice {
            Notice::Unmatched { event_type } => {
                tracing::debug!(plugin, job_id, event_type, "the event has no followers");
            }
            Notice::Cut { target, depth } => {
                tracing::error!(
                    plugin,
                    job_id,
                    target,
                    depth,
                    "too many hops; the event is dropped"
                );
            }
            Notice::Gone(position) => {
                let PipelinePosition { pipeline, step, .. } = position;
                tracing::warn!(
                    plugin,
                    job_id,
                    pipeline,
                    step,
                    "the configuration no longer has this step"
                );
            }
        }
    }
}
