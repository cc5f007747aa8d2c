//! The events of the stream: their names and their `data`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::breaker::BreakerState;
use crate::runtime::{
    JobEvent, JobEventKind, JobName, JobStatus, LiveEvent, LiveEventKind, SubmittedBy, job_id,
};

/// A name and its `data`.
pub type NamedEvent = (&'static str, Value);

/// The line `data` of an event.
pub fn data_line(kind: &str, at: Timestamp, data: &Value) -> String {
    // In this order, not in that of the alphabet.
    format!(r#"{{"type":"{kind}","at":"{at:.9}","data":{data}}}"#)
}

pub fn job_event(event: &JobEvent) -> NamedEvent {
    let JobName {
        id,
        plugin,
        command,
    } = &event.job;
    let id = job_id(*id);
    match &event.kind {
        JobEventKind::Scheduled { schedule_id } => (
            "scheduler.scheduled",
            json!({
                "job_id": id, "plugin": plugin, "command": command, "schedule_id": schedule_id,
                "submitted_by": SubmittedBy::Scheduler.as_str(),
            }),
        ),
        JobEventKind::Enqueued {
            submitted_by,
            schedule_id,
            direct,
        } => {
            let mut data = json!({
                "job_id": id, "plugin": plugin, "command": command, "submitted_by": submitted_by.map(SubmittedBy::as_str),
                "direct": direct,
            });
            if let Some(schedule_id) = schedule_id {
                data["schedule_id"] = schedule_id.as_str().into();
            }
            ("job.enqueued", data)
        }
        JobEventKind::PipelineEnqueued { jobs, pipeline } => {
            let ids: Vec<String> = jobs.iter().copied().map(job_id).collect();
            let data =
                json!({"job_id": id, "job_ids": ids, "job_count": ids.len(), "pipeline": pipeline});
            ("pipeline.enqueued", data)
        }
        JobEventKind::Routed {
            parent,
            position,
            event_context_id,
        } => {
            let position = position.as_ref();
            let data = json!({
                "job_id": id, "parent_job_id": job_id(*parent), "plugin": plugin, "command": command,
                "pipeline": position.map(|position| &position.pipeline), "step_id": position.map(|position| &position.step),
                "event_context_id": event_context_id,
            });
            ("router.enqueued", data)
        }
        JobEventKind::Started {
            attempt,
            parent,
            submitted_by,
        } => (
            "job.started",
            json!({
                "job_id": id, "plugin": plugin, "command": command, "attempt": attempt,
                "parent_job_id": parent.map(job_id), "submitted_by": submitted_by.map(SubmittedBy::as_str),
            }),
        ),
        JobEventKind::Postponed => (
            "job.postponed",
            json!({"job_id": id, "plugin": plugin, "command": command, "reason": "no_room"}),
        ),
        JobEventKind::RetryScheduled {
            attempt,
            attempts_max,
            next_retry,
            reason,
        } => (
            "job.retry_scheduled",
            json!({
                "job_id": id, "plugin": plugin, "command": command, "attempt": attempt, "max_attempts": attempts_max,
                "backoff_ms": next_retry.map(|next| next.backoff_ms),
                "next_retry_at": next_retry.map(|next| format!("{:.9}", next.at)), "reason": reason,
            }),
        ),
        JobEventKind::RetryExhausted {
            attempts,
            error,
            reason,
        } => (
            "job.retry_exhausted",
            json!({
                "job_id": id, "plugin": plugin, "attempts": attempts, "final_error": error, "reason": reason,
            }),
        ),
        JobEventKind::Ended {
            status,
            duration_ms,
            error,
        } => {
            let mut data = json!({
                "job_id": id, "plugin": plugin, "command": command, "status": status.as_str(), "duration_ms": duration_ms,
            });
            if let Some(error) = error {
                let line = format!("{plugin}/{command} {}: {error}", status.as_str());
                data["error"] = error.as_str().into();
                data["message"] = line.as_str().into();
                data["text"] = line.into();
            }
            let kind = match status {
                JobStatus::Succeeded => "job.completed",
                JobStatus::TimedOut => "job.timed_out",
                JobStatus::Queued | JobStatus::Running | JobStatus::Failed | JobStatus::Dead => {
                    "job.failed"
                }
            };
            (kind, data)
        }
    }
}

/// One event, or two for a breaker that is half open.
pub fn live_events(event: &LiveEvent) -> Vec<NamedEvent> {
    match &event.kind {
        LiveEventKind::Tick {
            now,
            entries,
            looked_at,
            took_us,
        } => {
            let data = json!({"at": format!("{now:.9}"), "entries": entries, "looked_at": looked_at, "took_us": took_us});
            vec![("scheduler.tick", data)]
        }
        LiveEventKind::Skipped {
            plugin,
            schedule_id,
            command,
            reason,
            next_run_at,
        } => {
            let data = json!({
                "plugin": plugin, "schedule_id": schedule_id, "command": command, "reason": reason.as_str(),
                "next_run_at": next_run_at.map(|next| format!("{next:.9}")),
            });
            vec![("scheduler.skipped", data)]
        }
        LiveEventKind::BreakerChanged {
            plugin,
            command,
            transition,
        } => {
            let data = json!({
                "plugin": plugin, "command": command, "previous_state": transition.from.as_str(),
                "state": transition.to.as_str(), "failure_count": transition.failures,
            });
            let mut events = Vec::with_capacity(2);
            if transition.to == BreakerState::HalfOpen {
                events.push(("scheduler.circuit_half_open", data.clone()));
            }
            events.push(("scheduler.circuit_state_changed", data));
            events
        }
        LiveEventKind::PluginSpawned {
            job,
            plugin,
            command,
            pid,
        } => {
            let data =
                json!({"job_id": job_id(*job), "plugin": plugin, "command": command, "pid": pid});
            vec![("plugin.spawned", data)]
        }
    }
}
