//! Jobs, their logs and their runs.

use std::collections::BTreeMap;

use consign_kernel::fact::Fact;
use consign_kernel::state::Cause;
use serde_json::{Map, Value, json};

use super::catalogue::step;
use super::{parsed, put, timestamp_json};
use crate::program::Program;
use crate::runtime::reads::{
    Ancestor, Inspection, JobContext, JobInfo, JobList, LogEntry, LogPage, PipelineRun,
    TreeOutcome, worst,
};
use crate::runtime::{JobStatus, SubmittedBy, records, timestamp};

/// One job: a line of a list, or all fields if they were read.
pub fn job(job: &JobInfo) -> Value {
    let mut object = Map::new();
    put(&mut object, "job_id", Some(job.job_id.clone()));
    put(&mut object, "plugin", job.plugin.clone());
    put(&mut object, "command", Some(job.command.clone()));
    put(&mut object, "status", Some(job.status.as_str()));
    put(&mut object, "attempt", Some(job.attempt));
    put(
        &mut object,
        "created_at",
        Some(timestamp_json(job.created_at)),
    );
    put(
        &mut object,
        "started_at",
        job.started_at.map(timestamp_json),
    );
    put(
        &mut object,
        "completed_at",
        job.completed_at.map(timestamp_json),
    );
    put(
        &mut object,
        "next_retry_at",
        job.next_retry_at.map(timestamp_json),
    );
    put(&mut object, "last_error", job.last_error.clone());
    put(&mut object, "result", job.result.as_deref().map(parsed));
    put(&mut object, "max_attempts", job.attempts_max);
    put(&mut object, "parent_job_id", job.parent_job_id.clone());
    let submitted_by = job.submitted_by.map(SubmittedBy::as_str);
    put(&mut object, "submitted_by", submitted_by);
    put(&mut object, "source_event_id", job.source_event_id.clone());
    put(&mut object, "dedupe_key", job.dedupe_key.clone());
    put(&mut object, "schedule_id", job.schedule_id.clone());
    put(&mut object, "instance_id", job.instance_id.clone());
    put(&mut object, "intent_id", job.intent_id.clone());
    put(&mut object, "pipeline", job.pipeline.clone());
    put(&mut object, "step_id", job.step_id.clone());
    let left_out = job.output_left_out.then_some(true);
    put(&mut object, "output_left_out", left_out);
    Value::Object(object)
}

pub fn jobs(jobs: &[JobInfo]) -> Vec<Value> {
    jobs.iter().map(job).collect()
}

pub fn job_list(list: &JobList) -> Value {
    json!({"jobs": jobs(&list.jobs), "total": list.total})
}

/// The response to a synchronous call.
pub fn tree_outcome(outcome: &TreeOutcome, duration_ms: u64) -> Value {
    json!({
        "job_id": outcome.job_id, "status": outcome.status.as_str(), "result": outcome.result.as_deref().map(parsed),
        "tree": jobs(&outcome.tree), "duration_ms": duration_ms,
    })
}

pub fn log_page(page: &LogPage) -> Value {
    let logs: Vec<Value> = page.logs.iter().map(log_entry).collect();
    let mut shown = json!({"logs": logs, "total": page.total});
    if let Some(cursor) = &page.next {
        shown["more"] = true.into();
        shown["cursor"] = cursor.to_string().into();
    }
    shown
}

fn log_entry(entry: &LogEntry) -> Value {
    let log = &entry.log;
    let mut object = Map::new();
    let log_id = records::log_key(&log.job_id, log.attempt).name;
    put(&mut object, "job_id", Some(log.job_id.clone()));
    put(&mut object, "log_id", Some(log_id));
    put(&mut object, "plugin", Some(log.plugin.clone()));
    put(&mut object, "command", Some(log.command.clone()));
    put(&mut object, "status", Some(log.status.as_str()));
    put(&mut object, "attempt", Some(log.attempt));
    put(&mut object, "submitted_by", Some(log.submitted_by.as_str()));
    let times = [
        ("created_at", log.created_at),
        ("started_at", log.started_at),
        ("completed_at", log.completed_at),
    ];
    for (key, at) in times {
        put(&mut object, key, Some(timestamp_json(at)));
    }
    put(&mut object, "last_error", log.last_error.clone());
    put(&mut object, "reason", log.reason.clone());
    put(&mut object, "parent_job_id", log.parent_job_id.clone());
    put(&mut object, "stderr", log.stderr.clone());
    put(&mut object, "result", log.result.as_deref().map(parsed));
    let left_out = entry.output_left_out.then_some(true);
    put(&mut object, "output_left_out", left_out);
    Value::Object(object)
}

pub fn inspection(inspection: &Inspection) -> Value {
    let lineage: Vec<Value> = inspection.lineage.iter().map(ancestor).collect();
    let contexts = inspection.contexts.iter().enumerate();
    let contexts: Vec<Value> = contexts.map(|(hop, one)| context(hop, one)).collect();
    let transitions: Vec<Value> = inspection.transitions.iter().map(transition).collect();
    let attempts: Vec<Value> = inspection.attempts.iter().map(log_entry).collect();
    json!({
        "job": job(&inspection.job), "lineage": lineage, "contexts": contexts, "transitions": transitions,
        "attempts": attempts,
    })
}

fn ancestor(ancestor: &Ancestor) -> Value {
    let mut object = Map::new();
    match ancestor {
        Ancestor::Pruned(id) => put(&mut object, "job_id", Some(id.clone())),
        Ancestor::Known(job) => {
            put(&mut object, "job_id", Some(job.job_id.clone()));
            put(&mut object, "plugin", job.plugin.clone());
            put(&mut object, "command", Some(job.command.clone()));
            put(&mut object, "status", Some(job.status.as_str()));
            put(&mut object, "attempt", Some(job.attempt));
            put(
                &mut object,
                "created_at",
                Some(timestamp_json(job.created_at)),
            );
            put(&mut object, "pipeline", job.pipeline.clone());
            put(&mut object, "step_id", job.step_id.clone());
        }
    }
    Value::Object(object)
}

fn context(hop: usize, JobContext { id, context }: &JobContext) -> Value {
    let mut shown = Map::new();
    put(&mut shown, "hop", Some(hop));
    put(&mut shown, "context_id", Some(id.clone()));
    put(&mut shown, "parent_id", context.parent_id.clone());
    put(&mut shown, "pipeline", context.pipeline_name.clone());
    put(&mut shown, "step_id", context.step_id.clone());
    put(&mut shown, "baggage", Some(context.accumulated.clone()));
    put(
        &mut shown,
        "created_at",
        Some(timestamp_json(context.created_at)),
    );
    Value::Object(shown)
}

/// A fact stores the cause of the state it leads to, so there is none for `from`.
fn transition(fact: &Fact) -> Value {
    let word = |state, cause| {
        let status = JobStatus::of_state(state, cause);
        status.unwrap_or(JobStatus::Queued).as_str()
    };
    let mut shown = Map::new();
    let at = timestamp_json(timestamp(fact.time_of_day()));
    put(&mut shown, "at", Some(at));
    put(&mut shown, "event", Some(fact.verb.fact()));
    put(
        &mut shown,
        "from",
        fact.from.map(|from| word(from, Cause::None)),
    );
    put(&mut shown, "to", Some(word(fact.to, fact.cause)));
    let cause = Some(fact.cause).filter(|cause| *cause != Cause::None);
    put(&mut shown, "cause", cause.map(Cause::name));
    put(&mut shown, "attempt", Some(fact.attempt));
    put(&mut shown, "by", fact.actor.clone());
    put(&mut shown, "detail", fact.detail.clone());
    Value::Object(shown)
}

/// A run with the steps of the current configuration; steps that it no longer has come last.
pub fn pipeline_run(run: &PipelineRun, program: &Program) -> Value {
    let mut ran: BTreeMap<&str, Vec<&JobInfo>> = BTreeMap::new();
    for (step, job) in &run.jobs {
        ran.entry(step).or_default().push(job);
    }
    let mut graph: Vec<Map<String, Value>> = Vec::new();
    if let Some(pipeline) = program.router().pipeline(&run.pipeline) {
        let nodes = pipeline.graph.nodes().iter().rev();
        for node in nodes {
            let mut shown = step(program, pipeline, node);
            add_jobs(&mut shown, ran.remove(node.id.as_str()));
            graph.push(shown);
        }
    }
    for (id, jobs) in ran {
        let mut shown = Map::new();
        put(&mut shown, "id", Some(id));
        add_jobs(&mut shown, Some(jobs));
        graph.push(shown);
    }
    let mut shown = json!({
        "instance_id": run.instance_id, "pipeline": run.pipeline, "root_job_id": run.root_job_id,
        "status": run.status().as_str(), "steps": graph,
    });
    if run.more {
        shown["more"] = true.into();
    }
    shown
}

fn add_jobs(shown: &mut Map<String, Value>, jobs: Option<Vec<&JobInfo>>) {
    let jobs = jobs.unwrap_or_default();
    let status = if jobs.is_empty() {
        "not_reached"
    } else {
        worst(jobs.iter().map(|job| job.status)).as_str()
    };
    put(shown, "status", Some(status));
    let jobs: Vec<Value> = jobs.into_iter().map(job).collect();
    put(shown, "jobs", Some(jobs));
}
