//! The end of an attempt as one commit: settles the job, queues its successors, and writes state, facts, breaker, schedule and
//! log, all or nothing.
//!
//! [`UnitOfWork`] defines the order of the steps.

use consign_engine::{Engine, Error, Lease, TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::command::{Admitted, Claim, NewIntent, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::limits::RECORD_LIFE_US;
use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde_json::Value;

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::job::{Job, SubmittedBy, job_id};
use super::job_status::JobStatus;
use super::lifecycle::{timestamp, uuid};
use super::successors::{self, Consequences, EventSource};
use super::{circuit, plugin_state, records, served_intent, setup};
use crate::breaker::BreakerTransition;
use crate::pipeline::{BAGGAGE_BYTES_MAX, EventRef, JobEnd, NextJob};
use crate::plugin::response::PluginResponse;

/// The maximum total size of the baggage copies in the successors of one job.
const BAGGAGE_COPIES_BYTES_MAX: usize = 64 << 20;
/// The failure reason of an attempt whose process ended with the service.
pub(super) const RECOVERED: &str = "recovered";
/// The command that runs once per program and configuration and is never retried.
pub(super) const INIT: &str = "init";

/// The result of finishing an attempt.
pub(super) struct FinishedAttempt {
    /// The status of the job afterwards; `Queued` for another attempt.
    pub(super) status: JobStatus,
    pub(super) error: Option<String>,
    pub(super) retry_at: Option<Timestamp>,
    /// The transition of the breaker, if any.
    pub(super) circuit: Option<BreakerTransition>,
    pub(super) children: Vec<(Job, Admitted)>,
    /// The jobs that the appended claim returned.
    pub(super) next: Vec<Intent>,
}

/// Settles the job with everything that follows, and claims the next one in the same commit if `next` is set. After an error
/// nothing was committed, or it is unknown whether it was.
pub(super) async fn finish(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    next: Option<&Claim>,
) -> Result<FinishedAttempt, Error> {
    for _ in 0..TRIES_MAX {
        match try_to_finish(engine, attempt, ended, next).await {
            Err(Error::Refused(Refusal::VersionMismatch)) => {}
            finished => return finished,
        }
    }
    Err(Error::Refused(Refusal::VersionMismatch))
}

async fn try_to_finish(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    next: Option<&Claim>,
) -> Result<FinishedAttempt, Error> {
    let mut consequences = Consequences::default();
    let settled = match &ended.end {
        AttemptEnd::Succeeded(response) => {
            apply_success(engine, attempt, ended, response, &mut consequences).await?
        }
        AttemptEnd::Switched { matched, payload } => {
            route_switch(engine, attempt, ended, *matched, payload, &mut consequences)
        }
        AttemptEnd::Failed(failure) => Err(failure.clone()),
        AttemptEnd::Cancelled => Err(AttemptFailure::permanent("it was cancelled")),
        // The dispatcher returns such a job to the queue instead; see `give_back`.
        AttemptEnd::NoResources(why) => Err(AttemptFailure::retryable(why)),
    };
    if settled.is_err() {
        // The preparations for a success are void.
        consequences = Consequences::default();
    }
    let failure = settled.as_ref().err();
    let (status, end) = status(attempt, failure);
    let mut circuit = None;
    if let Some(end) = end {
        let end = (status, end);
        circuit = apply_job_end(engine, attempt, ended, end, failure, &mut consequences).await?;
    }
    let Consequences { mut unit, jobs } = consequences;
    // The log records the outcome of the attempt; the queue records the state of the job.
    let outcome = match failure {
        Some(AttemptFailure {
            timed_out: true, ..
        }) => JobStatus::TimedOut,
        Some(_) => JobStatus::Failed,
        None => status,
    };
    write_log(engine, attempt, ended, outcome, failure, &mut unit);
    let end = unit.settle(&Lease::of(&attempt.intent), settlement(&settled));
    let admitted = (!jobs.is_empty()).then(|| unit.admit(items(attempt, &jobs)));
    let claimed = next.map(|next| unit.claim(next.clone()));
    let mut committed = engine.commit(unit).await?;
    let end = committed.get(end)?;
    let admitted = admitted
        .map(|admitted| committed.get(admitted))
        .transpose()?;
    let claimed = claimed.map(|claimed| committed.get(claimed)).transpose()?;
    Ok(FinishedAttempt {
        status,
        error: failure.map(|failure| failure.error.clone()),
        retry_at: (status == JobStatus::Queued).then(|| timestamp(end.run_at)),
        circuit,
        children: jobs.into_iter().zip(admitted.unwrap_or_default()).collect(),
        next: claimed.unwrap_or_default(),
    })
}

fn items(attempt: &Attempt, jobs: &[Job]) -> Vec<NewIntent> {
    let parent = Some(attempt.intent.id);
    let new = |job: &Job| job.intent(&attempt.program, parent, None);
    jobs.iter().map(new).collect()
}

/// The result text of a success, or the failure.
type SettledAttempt = Result<String, AttemptFailure>;

fn settlement(settled: &SettledAttempt) -> Settlement {
    match settled {
        Ok(result) => Settlement::Complete {
            result: Some(Outcome {
                kind: ResultKind::Text,
                body: result.clone(),
            }),
        },
        Err(failure) => Settlement::FailAttempt {
            error: failure.error.clone(),
            timed_out: failure.timed_out,
            again: failure.again,
        },
    }
}

/// The status of the job afterwards, and its final end if it has one.
fn status(attempt: &Attempt, failure: Option<&AttemptFailure>) -> (JobStatus, Option<JobEnd>) {
    let Some(failure) = failure else {
        return (JobStatus::Succeeded, Some(JobEnd::Succeeded));
    };
    let last = attempt.intent.attempts >= attempt.intent.attempts_max;
    match failure {
        AttemptFailure { again: true, .. } if last => (JobStatus::Dead, Some(JobEnd::Dead)),
        AttemptFailure { again: true, .. } => (JobStatus::Queued, None),
        AttemptFailure {
            timed_out: true, ..
        } => (JobStatus::TimedOut, Some(JobEnd::TimedOut)),
        AttemptFailure { .. } => (JobStatus::Failed, Some(JobEnd::Failed)),
    }
}

async fn apply_success(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    response: &PluginResponse,
    consequences: &mut Consequences,
) -> Result<SettledAttempt, Error> {
    let unit = &mut consequences.unit;
    if let Err(failure) =
        plugin_state::apply_updates(engine, attempt, ended, response, unit).await?
    {
        return Ok(Err(failure));
    }
    if plant::on(Plant::FactsApart) {
        engine.commit(std::mem::take(unit)).await?;
    }
    // Baggage is bounded, so the sum needs no exact check for a few events.
    let most = response.events.len().saturating_mul(BAGGAGE_BYTES_MAX);
    let carried = || serde_json::to_string(&attempt.context).map_or(usize::MAX, |text| text.len());
    if most > BAGGAGE_COPIES_BYTES_MAX
        && response.events.len().saturating_mul(carried()) > BAGGAGE_COPIES_BYTES_MAX
    {
        let error = "the copies of the baggage in its events would be too large";
        return Ok(Err(AttemptFailure::permanent(error)));
    }
    let events: Vec<EventRef<'_>> = response
        .events
        .iter()
        .map(|event| EventRef {
            event_type: &event.kind,
            payload: &event.payload,
        })
        .collect();
    let router = attempt.program.router();
    let routed = router.finished(
        successors::producer(attempt),
        &events,
        Some(&response.result),
    );
    let routed = match routed {
        Ok(routed) => routed,
        Err(error) => return Ok(Err(AttemptFailure::permanent(error.to_string()))),
    };
    let ids: Vec<String> = response.events.iter().map(|_| uuid(engine)).collect();
    let source = |next: &NextJob| match next.event {
        Some(index) => EventSource {
            kind: next.event_type.clone(),
            plugin: attempt.job.plugin.clone(),
            at: ended.completed_at,
            id: ids[index].clone(),
            dedupe_key: response.events[index].dedupe_key.clone(),
        },
        None => EventSource {
            kind: next.event_type.clone(),
            plugin: attempt.job.plugin.clone(),
            at: ended.completed_at,
            id: uuid(engine),
            dedupe_key: None,
        },
    };
    Ok(
        successors::queue(engine, attempt, ended, routed, source, consequences)
            .map(|()| response.result.clone()),
    )
}

/// Routes an event after its condition was evaluated; the event itself is unchanged.
fn route_switch(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    matched: bool,
    payload: &Value,
    consequences: &mut Consequences,
) -> SettledAttempt {
    let text = |name: &str| {
        let value = attempt.job.payload.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let kind = text("type");
    let event = EventRef {
        event_type: &kind,
        payload,
    };
    let routed = attempt
        .program
        .router()
        .switched(successors::producer(attempt), event, matched)
        .map_err(|error| AttemptFailure::permanent(error.to_string()))?;
    let source = |_: &NextJob| EventSource {
        kind: kind.clone(),
        plugin: text("source"),
        at: text("timestamp").parse().unwrap_or(ended.completed_at),
        id: text("event_id"),
        dedupe_key: attempt.job.dedupe_key.clone(),
    };
    successors::queue(engine, attempt, ended, routed, source, consequences)?;
    Ok(crate::pipeline::switch_result(matched).to_string())
}

/// Logs an attempt that no process of this runtime reported, and queues what follows if the job is over. Replacing `mark` in the
/// same commit makes sure that this happens once.
pub(super) async fn record_unreported_end(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    failure: &AttemptFailure,
    mark: &Versioned<records::Watermark>,
) -> Result<FinishedAttempt, Error> {
    let mut consequences = Consequences::default();
    consequences.unit.replace(mark);
    let mut circuit = None;
    let status = if failure.again {
        JobStatus::Queued
    } else {
        JobStatus::Dead
    };
    if !failure.again {
        let end = (status, JobEnd::Dead);
        let failure = Some(failure);
        circuit = apply_job_end(engine, attempt, ended, end, failure, &mut consequences).await?;
    }
    let Consequences { mut unit, jobs } = consequences;
    let outcome = match failure {
        AttemptFailure {
            timed_out: true, ..
        } => JobStatus::TimedOut,
        AttemptFailure { again: true, .. } => JobStatus::Failed,
        AttemptFailure { .. } => JobStatus::Dead,
    };
    write_log(engine, attempt, ended, outcome, Some(failure), &mut unit);
    let admitted = (!jobs.is_empty()).then(|| unit.admit(items(attempt, &jobs)));
    let mut committed = engine.commit(unit).await?;
    let admitted = admitted
        .map(|admitted| committed.get(admitted))
        .transpose()?;
    Ok(FinishedAttempt {
        status,
        error: Some(failure.error.clone()),
        retry_at: None,
        circuit,
        children: jobs.into_iter().zip(admitted.unwrap_or_default()).collect(),
        next: Vec::new(),
    })
}

/// The consequences of the end of a job, whatever its cause.
async fn apply_job_end(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    end: (JobStatus, JobEnd),
    failure: Option<&AttemptFailure>,
    consequences: &mut Consequences,
) -> Result<Option<BreakerTransition>, Error> {
    successors::queue_hooks(engine, attempt, ended, end, failure, consequences);
    let unit = &mut consequences.unit;
    served_intent::settle(engine, attempt, ended, failure, unit).await?;
    if attempt.job.command == INIT {
        setup::record_result(engine, attempt, failure, unit).await?;
    } else if attempt.job.submitted_by == SubmittedBy::Scheduler {
        return circuit::record_result(engine, attempt, failure.is_none(), ended, unit).await;
    }
    Ok(None)
}

fn write_log(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    status: JobStatus,
    failure: Option<&AttemptFailure>,
    unit: &mut UnitOfWork,
) {
    let job = &attempt.job;
    let log = records::JobLog {
        job_id: attempt.job_id(),
        plugin: job.plugin.clone(),
        command: job.command.clone(),
        status,
        attempt: attempt.intent.attempts,
        submitted_by: job.submitted_by,
        created_at: timestamp(attempt.intent.created_at),
        started_at: attempt.started_at,
        completed_at: ended.completed_at,
        result: ended.stdout.clone(),
        last_error: failure.map(|failure| failure.error.clone()),
        reason: failure.map(|failure| failure.reason.to_owned()),
        stderr: ended.stderr.clone(),
        parent_job_id: attempt.intent.ties.parent.map(job_id),
        source_event_id: job.source_event_id.clone(),
    };
    let until = engine.now().plus(RECORD_LIFE_US);
    let key = records::log_key(&log.job_id, log.attempt);
    unit.put_until(key, &log, until);
}

/// Returns a job to its place in the queue because the system had no resources to start its process. No attempt is counted.
pub(super) async fn give_back(engine: &Engine, intent: &Intent) -> Result<(), Error> {
    let lease = Lease::of(intent);
    engine.settle(lease.settle(Settlement::GiveBack)).await?;
    Ok(())
}

/// Fails a job that cannot be read, permanently and without successors.
pub(super) async fn fail_unreadable(
    engine: &Engine,
    intent: &Intent,
    failure: &AttemptFailure,
) -> Result<IntentId, Error> {
    let lease = Lease::of(intent);
    let how = settlement(&Err(failure.clone()));
    engine.settle(lease.settle(how)).await?;
    Ok(intent.id)
}
