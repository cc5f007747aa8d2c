//! The `core.send` step: sends a message to an agent of Beam and waits for what becomes of it.
//!
//! The message is sent once, however often the step is retried, because its nonce is the id of the job. A waiting step uses no
//! worker slot. A message that was sent is never recalled.

use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;
use serde_json::{Map, Value, json};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::message_bus::{MessageBus, OutgoingMessage, SendError};
use super::publish::{TIMEOUT_DEFAULT, TIMEOUT_MAX, stored_result, time_left};
use crate::pipeline::{SEND_CONTROLS, SendUntil};
use crate::plugin::response::{EmittedEvent, PluginResponse};

/// The pause after a send that the bus could not accept, for example because of the rate limit of the sender.
const SEND_AGAIN: Duration = Duration::from_secs(1);

pub(super) const NO_BUS: &str =
    "this service has no message bus; run it with `consign serve --config`";

/// The message that the step requests.
struct SendRequest {
    message: OutgoingMessage,
    until: SendUntil,
    timeout: Duration,
}

pub(super) async fn send(
    engine: &Engine,
    bus: Option<&dyn MessageBus>,
    attempt: &Attempt,
    payload: Value,
    cancel: impl Future<Output = ()>,
) -> AttemptReport {
    let failed = |failure| Attempt::report(AttemptEnd::Failed(failure), engine);
    let (bus, request) = match request(bus, attempt, payload) {
        Ok(found) => found,
        Err(error) => return failed(AttemptFailure::permanent(error)),
    };
    let mut id = None;
    let ended = tokio::select! {
        ended = send_and_wait(engine, bus, &request, &mut id) => ended,
        () = tokio::time::sleep(time_left(engine, attempt, request.timeout)) => {
            return failed(AttemptFailure {
                error: late(engine, &request, id).await,
                reason: "timeout",
                timed_out: true,
                again: false,
            });
        }
        // If another node took the step over, it finds the same message.
        () = cancel => return Attempt::report(AttemptEnd::Cancelled, engine),
    };
    let row = match ended {
        Ok(row) => row,
        Err(failure) => return failed(failure),
    };
    let (id, word) = (row.id, word(row.state));
    match row.state {
        State::Failed | State::DeadLetter => {
            let why = row.last_error.as_deref().unwrap_or("no reason was given");
            let error = format!("message {id} is {word}: {why}");
            failed(AttemptFailure::permanent(error))
        }
        State::Received
        | State::Validated
        | State::Queued
        | State::Dispatched
        | State::Delivered
        | State::Acked => {
            let response = response(&row, &request);
            let output = json!({
                "status": "ok", "result": response.result, "message_id": id.to_string(), "outcome": word,
            });
            AttemptReport {
                stdout: Some(output.to_string()),
                ..Attempt::report(AttemptEnd::Succeeded(response), engine)
            }
        }
    }
}

/// Only the configuration of the step decides where the message goes; keys of the same name from a sender are payload.
fn request<'a>(
    bus: Option<&'a dyn MessageBus>,
    attempt: &Attempt,
    payload: Value,
) -> Result<(&'a dyn MessageBus, SendRequest), String> {
    let bus = bus.ok_or(NO_BUS)?;
    let Value::Object(mut payload) = payload else {
        return Err("the step needs a payload that is an object".to_owned());
    };
    let mut controls: Map<String, Value> = Map::new();
    let configured = SEND_CONTROLS
        .into_iter()
        .filter(|name| attempt.is_configured(name));
    for name in configured {
        controls.extend(payload.remove(name).map(|value| (name.to_owned(), value)));
    }
    payload.retain(|key, _| !key.starts_with("ductile_"));
    let text = |name: &str| controls.get(name).and_then(Value::as_str);
    let needed = |name: &str| {
        let text = text(name).map(str::trim).filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| format!("`with.{name}` must be a text that is not empty"))
    };
    let sender = needed("from")?;
    if !bus.signs_for(&sender) {
        return Err(no_identity(&sender));
    }
    let until = text("until").map_or(Some(SendUntil::Delivered), SendUntil::parse);
    let timeout = match text("timeout") {
        None => TIMEOUT_DEFAULT,
        Some(text) => {
            crate::scalar::duration(text).map_err(|error| format!("`timeout`: {error}"))?
        }
    };
    let sent = match controls.get("payload") {
        None => Value::Object(payload),
        Some(given @ Value::Object(_)) => given.clone(),
        Some(_) => return Err("`with.payload` must refer to an object".to_owned()),
    };
    let request = SendRequest {
        message: OutgoingMessage {
            sender,
            recipient: needed("to")?,
            intent: needed("intent")?,
            payload: sent.to_string(),
            nonce: attempt.job_id(),
            trace_id: attempt.job.instance_id.clone(),
        },
        until: until.ok_or(SendUntil::WRONG)?,
        timeout: timeout.min(TIMEOUT_MAX),
    };
    Ok((bus, request))
}

/// Why a step or a check refuses this sender.
pub(super) fn no_identity(sender: &str) -> String {
    format!(
        "the message bus has no key of `{sender}` and cannot sign for it; add its identity to the file that BEAM_BUS_IDENTITY_PATH names, and restart the server"
    )
}

/// The row of the message when the step has waited long enough. `sent` is the id of the message once it is stored.
async fn send_and_wait(
    engine: &Engine,
    bus: &dyn MessageBus,
    request: &SendRequest,
    sent: &mut Option<IntentId>,
) -> Result<Intent, AttemptFailure> {
    let id = loop {
        match bus.send(request.message.clone()).await {
            Ok(id) => break id,
            Err(SendError::Refused(why)) => {
                let error = format!("the message was not sent: {why}");
                return Err(AttemptFailure::permanent(error));
            }
            Err(SendError::Unavailable(why)) => {
                tracing::debug!(component = "messages", why, "a message waits for the bus");
                tokio::time::sleep(SEND_AGAIN).await;
            }
        }
    };
    *sent = Some(id);
    let until = request.until;
    let is_enough = |row: &Intent| match row.state {
        State::Acked | State::Failed | State::DeadLetter => true,
        State::Delivered => until != SendUntil::Acked,
        State::Received | State::Validated | State::Queued | State::Dispatched => {
            until == SendUntil::Sent
        }
    };
    let recipient = &request.message.recipient;
    let waited = engine.until_row(id, recipient, Duration::ZERO, is_enough);
    let row = waited
        .await
        .map_err(|error: Error| AttemptFailure::retryable(error.to_string()))?;
    row.ok_or_else(|| AttemptFailure::permanent(format!("message {id} was removed")))
}

async fn late(engine: &Engine, request: &SendRequest, id: Option<IntentId>) -> String {
    let (waited, expected) = (request.timeout, request.until.as_str());
    let Some(id) = id else {
        return format!("the message bus did not accept the message within {waited:?}");
    };
    let row = engine.observe(id).await.ok().flatten();
    let now = row.map_or("removed", |row| word(row.state));
    format!("message {id} was not {expected} within {waited:?}; it is {now}, and is not recalled")
}

/// The word of a state as the sender of a message sees it.
fn word(state: State) -> &'static str {
    match state {
        State::Received | State::Validated | State::Queued | State::Dispatched => "queued",
        State::Delivered => "delivered",
        State::Acked => "acked",
        State::Failed => "failed",
        State::DeadLetter => "dead_letter",
    }
}

fn response(row: &Intent, request: &SendRequest) -> PluginResponse {
    let (id, word) = (row.id, word(row.state));
    let message = &request.message;
    let payload = json!({
        "message_id": id.to_string(), "nonce": message.nonce, "outcome": word,
        "from": message.sender, "to": message.recipient, "intent": message.intent,
        "response": stored_result(row),
    });
    PluginResponse {
        result: format!("message {id} is {word}"),
        events: vec![EmittedEvent {
            kind: format!("message.{word}"),
            payload,
            dedupe_key: None,
        }],
        state_updates: Map::new(),
        logs: Vec::new(),
    }
}
