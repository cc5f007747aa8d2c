//! The `core.publish` step: publishes an intent for any worker of the Intent Protocol and waits for its end.
//!
//! The intent is published once, however often the step is retried. A waiting step uses no worker slot.

use std::time::Duration;

use consign_engine::{Engine, Error, Publication, PublicationKey};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::{Intent, ResultKind};
use consign_kernel::limits;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use serde_json::{Map, Value, json};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure};
use super::job::micros;
use super::publication::{self, BACKOFF_US};
use crate::config::intents::{is_goal, is_namespace};
use crate::nesting::is_too_deep;
use crate::plugin::response::{EmittedEvent, PluginResponse};

const NAMESPACE_DEFAULT: &str = "default";
pub(super) const TIMEOUT_DEFAULT: Duration = Duration::from_hours(1);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_hours(23);
/// The type of the event that follows when the intent was fulfilled.
const FULFILLED: &str = "intent.fulfilled";
/// A step publishes one intent; its other children are the jobs that follow from it.
const CHILDREN_MAX: u32 = 1_000;
const STOPPED: &str = "the pipeline step that published it timed out";
const CANCELLED: &str = "the pipeline step that published it was cancelled";
/// Keys of the payload that control the publication and are not published.
const CONTROLS: [&str; 5] = ["goal", "namespace", "timeout", "max_attempts", "intent"];

/// The publication that the step requests.
struct PublishRequest {
    goal: String,
    namespace: String,
    payload: String,
    attempts_max: u32,
    timeout: Duration,
}

pub(super) async fn publish(
    engine: &Engine,
    attempt: &Attempt,
    payload: Value,
    cancel: impl Future<Output = ()>,
) -> AttemptEnd {
    let request = match request(attempt, payload) {
        Ok(request) => request,
        Err(error) => return AttemptEnd::Failed(AttemptFailure::permanent(error)),
    };
    let id = match admit(engine, attempt, &request).await {
        Ok(id) => id,
        Err(error) => {
            return AttemptEnd::Failed(AttemptFailure::retryable(format!(
                "the intent could not be published: {error}"
            )));
        }
    };
    let ended = tokio::select! {
        ended = engine.until_settled(id, Duration::ZERO) => ended,
        () = tokio::time::sleep(time_left(engine, attempt, request.timeout)) => {
            cancel_or_warn(engine, id, STOPPED).await;
            return AttemptEnd::Failed(AttemptFailure {
                error: format!("intent {id} was not fulfilled within {:?}", request.timeout),
                reason: "timeout",
                timed_out: true,
                again: false,
            });
        }
        () = cancel => {
            // If another node took the step over, it waits there for the same intent.
            if let Ok(Some(job)) = engine.observe(attempt.intent.id).await
                && job.state == State::DeadLetter
            {
                cancel_or_warn(engine, id, CANCELLED).await;
            }
            return AttemptEnd::Cancelled;
        }
    };
    match ended {
        Err(error) => AttemptEnd::Failed(AttemptFailure::retryable(error.to_string())),
        Ok(None) => AttemptEnd::Failed(AttemptFailure::permanent(format!(
            "intent {id} was removed"
        ))),
        Ok(Some(intent)) if intent.state == State::Acked => {
            AttemptEnd::Succeeded(fulfilled(&intent))
        }
        Ok(Some(intent)) => {
            let why = intent
                .last_error
                .unwrap_or_else(|| "no reason was given".to_owned());
            AttemptEnd::Failed(AttemptFailure::permanent(format!(
                "intent {id} was not fulfilled: {why}"
            )))
        }
    }
}

/// Counted from the creation of the job, because each start continues the same wait.
pub(super) fn time_left(engine: &Engine, attempt: &Attempt, timeout: Duration) -> Duration {
    let waited_us = engine.now().0.saturating_sub(attempt.intent.created_at.0);
    let waited = Duration::from_micros(u64::try_from(waited_us).unwrap_or(0));
    timeout.saturating_sub(waited)
}

/// Only the configuration of the step chooses the goal; keys of the same name from a sender are payload.
fn request(attempt: &Attempt, payload: Value) -> Result<PublishRequest, String> {
    let Value::Object(mut payload) = payload else {
        return Err("the step needs a payload that is an object".to_owned());
    };
    let mut controls: Map<String, Value> = Map::new();
    for name in CONTROLS
        .into_iter()
        .filter(|name| attempt.is_configured(name))
    {
        controls.extend(payload.remove(name).map(|value| (name.to_owned(), value)));
    }
    payload.retain(|key, _| !key.starts_with("ductile_"));
    let text = |name: &str| controls.get(name).and_then(Value::as_str);
    let goal = text("goal").map(str::trim).filter(|goal| !goal.is_empty());
    let goal = goal.ok_or("the step needs `with: {goal: …}`, the goal of the intent")?;
    let namespace = text("namespace").unwrap_or(NAMESPACE_DEFAULT);
    if !is_goal(goal) || !is_namespace(namespace) {
        return Err("the goal or the namespace is not valid for an intent".to_owned());
    }
    let timeout = match text("timeout") {
        None => TIMEOUT_DEFAULT,
        Some(text) => {
            crate::scalar::duration(text).map_err(|error| format!("`timeout`: {error}"))?
        }
    };
    let attempts = controls.get("max_attempts").and_then(Value::as_u64);
    let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok());
    let whole = Value::Object(payload);
    let published = controls.get("intent").unwrap_or(&whole).to_string();
    publication::check_size(&published)?;
    Ok(PublishRequest {
        goal: goal.to_owned(),
        namespace: namespace.to_owned(),
        payload: published,
        attempts_max: attempts
            .unwrap_or(limits::ATTEMPTS_DEFAULT)
            .clamp(1, limits::ATTEMPTS_MAX),
        timeout: timeout.min(TIMEOUT_MAX),
    })
}

async fn admit(
    engine: &Engine,
    attempt: &Attempt,
    request: &PublishRequest,
) -> Result<IntentId, Error> {
    let publication = Publication {
        goal: request.goal.clone(),
        namespace: request.namespace.clone(),
        payload: request.payload.clone(),
        attempts_max: request.attempts_max,
        backoff_us: BACKOFF_US,
        ttl_us: limits::INTENT_TTL_US.max(micros(request.timeout)),
        once: Some(PublicationKey {
            key: format!("automation:{}", attempt.job_id()),
            fingerprint: *blake3::hash(request.payload.as_bytes()).as_bytes(),
            lifetime_us: limits::RETENTION_US,
        }),
        parent: Some(attempt.intent.id),
    };
    Ok(engine.publish(publication).await?.id)
}

async fn cancel_or_warn(engine: &Engine, id: IntentId, reason: &str) {
    if let Err(error) = engine.withdraw(id, reason).await {
        tracing::warn!(%id, %error, "an abandoned intent could not be cancelled");
    }
}

/// Cancels the intent of a step that ended while no process waited for it: before the step was claimed again after a restart, or
/// while no service ran.
pub(super) async fn cancel_published(engine: &Engine, step: IntentId) -> Result<(), Error> {
    let published = engine.children(step, CHILDREN_MAX).await?;
    let intents = published
        .iter()
        .filter(|row| row.profile == ProfileId::Intent);
    for intent in intents {
        engine.withdraw(intent.id, CANCELLED).await?;
    }
    Ok(())
}

/// The result of a settled row, as JSON if it is that.
pub(super) fn stored_result(row: &Intent) -> Value {
    let Some(result) = &row.result else {
        return Value::Null;
    };
    let text = || Value::from(result.body.as_str());
    match result.kind {
        ResultKind::Json => serde_json::from_str(&result.body)
            .ok()
            .filter(|value| !is_too_deep(value))
            .unwrap_or_else(text),
        ResultKind::Text => text(),
    }
}

fn fulfilled(intent: &Intent) -> PluginResponse {
    let payload = json!({
        "result": stored_result(intent), "intent_id": intent.id.to_string(), "namespace": intent.namespace, "goal": intent.goal,
    });
    PluginResponse {
        result: format!("intent {} was fulfilled", intent.id),
        events: vec![EmittedEvent {
            kind: FULFILLED.to_owned(),
            payload,
            dedupe_key: None,
        }],
        state_updates: Map::new(),
        logs: Vec::new(),
    }
}
