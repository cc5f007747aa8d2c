//! The job of a received message: starts the pipelines that its event triggers, waits for all their jobs, and ends together
//! with the message.
//!
//! Invariant: a message starts its pipelines once. The first jobs are admitted with keys that follow from the message, in a
//! commit that only the holder of the message can make; a job that takes the message over finds them and waits for them.

use std::sync::Arc;

use consign_engine::{Error, KEPT_LEASE_US, Lease, UnitOfWork};
use consign_kernel::command::{Forget, OnceGuard};
use consign_kernel::ids::{DAY_US, IntentId};
use consign_kernel::once::{OnceKey, Scope};
use serde_json::{Map, Value};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::job_status::JobStatus;
use super::lifecycle::{Runtime, RuntimeInner};
use super::served_intent::ServedIntent;
use super::successors::{self, Consequences, EventSource};
use crate::pipeline::{EventRef, NextJob};
use crate::plugin::response::PluginResponse;

/// Longer than a message is in progress. The end of the message removes the keys.
const KEY_LIFETIME_US: i64 = 90 * DAY_US;

/// Waits without a timeout: the jobs have their own.
pub(super) async fn run(
    inner: &Arc<RuntimeInner>,
    attempt: &Attempt,
    cancel: impl Future<Output = ()>,
) -> AttemptReport {
    let end = tokio::select! {
        ended = start_and_wait(inner, attempt) => match ended {
            Ok(Ok(result)) => AttemptEnd::Succeeded(PluginResponse {
                result,
                events: Vec::new(),
                state_updates: Map::new(),
                logs: Vec::new(),
            }),
            Ok(Err(failure)) => AttemptEnd::Failed(failure),
            Err(error) => AttemptEnd::Failed(AttemptFailure::retryable(error.to_string())),
        },
        () = cancel => AttemptEnd::Cancelled,
    };
    Attempt::report(end, &inner.engine)
}

/// The result of the last step, or why the message fails.
async fn start_and_wait(
    inner: &Arc<RuntimeInner>,
    attempt: &Attempt,
) -> Result<Result<String, AttemptFailure>, Error> {
    let Some(served) = &attempt.job.serves else {
        let error = "the job refers to no message";
        return Ok(Err(AttemptFailure::permanent(error)));
    };
    let mut first = first_jobs(inner, served).await?;
    if first.is_empty() {
        first = match start(inner, attempt, served).await {
            Ok(Ok(started)) => started,
            Ok(Err(failure)) => return Ok(Err(failure)),
            // The message is offered again, and the job that gets it starts the pipelines.
            Err(Error::Refused(refusal)) => {
                let error = format!("the job no longer holds the message: {refusal}");
                return Ok(Err(AttemptFailure::permanent(error)));
            }
            Err(error) => return Err(error),
        };
    }
    let runtime = Runtime {
        inner: Arc::clone(inner),
    };
    let mut result = "no pipeline accepted the message".to_owned();
    for id in first {
        runtime.until_tree_ended(id).await?;
        // Jobs that are no longer kept have ended long ago.
        let Some(outcome) = runtime.tree_outcome(id).await? else {
            continue;
        };
        let failed = outcome
            .tree
            .iter()
            .find(|job| job.status != JobStatus::Succeeded);
        if let Some(failed) = failed {
            let (job, status) = (&failed.job_id, failed.status.as_str());
            let why = failed.last_error.as_deref().unwrap_or("no reason is known");
            let error = format!("job {job} is {status}: {why}");
            return Ok(Err(AttemptFailure::permanent(error)));
        }
        result = result_text(outcome.result);
    }
    Ok(Ok(result))
}

/// What the last step printed, or the `result` in it.
fn result_text(printed: Option<String>) -> String {
    let printed = printed.unwrap_or_default();
    let parsed: Option<Value> = serde_json::from_str(&printed).ok();
    let result = parsed
        .as_ref()
        .and_then(|parsed| parsed.get("result")?.as_str());
    result.map(str::to_owned).unwrap_or(printed)
}

/// The jobs that an earlier job of the same message started.
async fn first_jobs(inner: &RuntimeInner, served: &ServedIntent) -> Result<Vec<IntentId>, Error> {
    let mut found = Vec::new();
    while let Some(used) = inner.engine.first_use(key(served, found.len())).await? {
        found.extend(used.intent);
        if used.intent.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Admits the first jobs of all pipelines that the event triggers.
async fn start(
    inner: &RuntimeInner,
    attempt: &Attempt,
    served: &ServedIntent,
) -> Result<Result<Vec<IntentId>, AttemptFailure>, Error> {
    let wrapper = &attempt.job.payload;
    let text = |name: &str| {
        let value = wrapper.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let kind = text("type");
    let payload = wrapper.get("payload").cloned().unwrap_or_default();
    let event = EventRef {
        event_type: &kind,
        payload: &payload,
    };
    let producer = successors::producer(attempt);
    let routed = match attempt.program.router().finished(producer, &[event], None) {
        Ok(routed) => routed,
        Err(error) => return Ok(Err(AttemptFailure::permanent(error.to_string()))),
    };
    let source = |_: &NextJob| EventSource {
        kind: kind.clone(),
        plugin: text("source"),
        at: attempt.started_at,
        id: text("event_id"),
        dedupe_key: None,
    };
    let mut consequences = Consequences::default();
    let begun = Attempt::report(AttemptEnd::Cancelled, &inner.engine);
    let engine = &inner.engine;
    if let Err(failure) =
        successors::queue(engine, attempt, &begun, routed, source, &mut consequences)
    {
        return Ok(Err(failure));
    }
    let Consequences { mut unit, jobs } = consequences;
    if jobs.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    unit.extend(&Lease::of(&attempt.intent), KEPT_LEASE_US);
    unit.extend(&served.lease()?, KEPT_LEASE_US);
    let items = jobs.iter().zip(0..).map(|(job, index)| {
        let mut item = job.intent(&attempt.program, Some(attempt.intent.id), None);
        item.once = Some(OnceGuard {
            key: key(served, index),
            // A message has one content, so there is nothing to compare.
            fingerprint: [0; 32],
            lifetime_us: KEY_LIFETIME_US,
        });
        item
    });
    let admitted = unit.admit(items.collect());
    let admitted = engine.commit(unit).await?.get(admitted)?;
    Ok(Ok(admitted.iter().map(|job| job.id).collect()))
}

fn key(served: &ServedIntent, index: usize) -> OnceKey {
    OnceKey {
        scope: Scope::IntentIdempotency,
        owner: key_owner(served),
        key: index.to_string(),
    }
}

/// The owner of the keys of one message.
fn key_owner(served: &ServedIntent) -> String {
    format!("message:{}", served.intent_id)
}

/// Removes the keys in the commit that ends the message. If an operator requeues it, its pipelines run again.
pub(super) fn forget_first_jobs(served: &ServedIntent, unit: &mut UnitOfWork) {
    unit.forget(Forget::OnceOf {
        owner: key_owner(served),
    });
}
