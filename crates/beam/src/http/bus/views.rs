//! Messages as JSON. Times are seconds since 1970 with a fraction.

use axum::response::Response;
use consign_kernel::ids::Micros;
use consign_kernel::state::State;
use http::StatusCode;

use crate::bus::{BusMessage, BusStats, DeliveryFailure, DeliveryOutcome, MessageEvent};
use crate::http::response::json_text;
use crate::lifecycle::state_word;
use crate::text::{self, BeamObject, BeamValue};

pub(super) fn respond(status: StatusCode, body: BeamObject) -> Response {
    json_text(status, BeamValue::Object(body).to_text())
}

/// A list of messages, with their number.
pub(super) fn list(
    messages: &[BusMessage],
    view: impl Fn(&BusMessage) -> BeamObject,
) -> BeamObject {
    let views: Vec<BeamValue> = messages
        .iter()
        .map(|message| view(message).into())
        .collect();
    let count = number(messages.len());
    let mut body = BeamObject::new();
    body.insert("messages", views);
    body.insert("count", count);
    body
}

/// What a recipient reads.
pub(super) fn polled(message: &BusMessage) -> BeamObject {
    let mut view = BeamObject::new();
    view.insert("id", message.id.to_string());
    view.insert("sender", &*message.sender);
    view.insert("intent", &*message.intent);
    view.insert("payload", message.content.payload.clone());
    view.insert("priority", i64::from(message.priority));
    view.insert("created_at", seconds(message.created_at));
    view.insert("delivered_at", message.delivered_at.map(seconds));
    view.insert("trace_id", message.content.trace_id.clone());
    view
}

/// Everything about a message.
pub(super) fn full(message: &BusMessage) -> BeamObject {
    let content = &message.content;
    // A stored response is JSON that this server printed.
    let response = message.response.as_deref();
    let response = response.and_then(|response| text::parse(response.as_bytes()).ok());
    let mut view = BeamObject::new();
    view.insert("id", message.id.to_string());
    view.insert("nonce", &*content.nonce);
    view.insert("sender", &*message.sender);
    view.insert("recipient", &*message.recipient);
    view.insert("intent", &*message.intent);
    view.insert("payload", content.payload.clone());
    view.insert("status", state_word(message.state));
    view.insert("priority", i64::from(message.priority));
    view.insert("retry_count", i64::from(message.retry_count));
    view.insert("max_retries", i64::from(message.max_retries));
    view.insert("next_retry_at", message.next_retry_at.map(seconds));
    view.insert("created_at", seconds(message.created_at));
    view.insert("delivered_at", message.delivered_at.map(seconds));
    view.insert("acked_at", message.acked_at.map(seconds));
    view.insert("failed_at", message.failed_at.map(seconds));
    view.insert("error", message.error.clone());
    view.insert("response", response);
    view.insert("trace_id", content.trace_id.clone());
    view.insert("metadata", content.metadata.clone());
    view
}

/// The id and the nonce of a message, with its status.
pub(super) fn head(message: &BusMessage, status: &str) -> BeamObject {
    let mut view = BeamObject::new();
    view.insert("message_id", message.id.to_string());
    view.insert("nonce", &*message.content.nonce);
    view.insert("status", status);
    view
}

pub(super) fn outcome_word(outcome: &DeliveryOutcome) -> &'static str {
    match outcome {
        DeliveryOutcome::Delivered => "delivered",
        DeliveryOutcome::Queued { .. } => "queued",
        DeliveryOutcome::DeadLetter { .. } => "dead_letter",
    }
}

/// Adds what an attempt led to.
pub(super) fn add_outcome(body: &mut BeamObject, outcome: &DeliveryOutcome) {
    match outcome {
        DeliveryOutcome::Delivered => {}
        DeliveryOutcome::Queued {
            retry_count,
            next_retry_at,
            failure,
        } => {
            body.insert("retry_count", i64::from(*retry_count));
            body.insert("next_retry_at", seconds(*next_retry_at));
            add_failure(body, failure);
        }
        DeliveryOutcome::DeadLetter { failure } => add_failure(body, failure),
    }
}

fn add_failure(body: &mut BeamObject, failure: &DeliveryFailure) {
    body.insert("error", &*failure.text);
    if let Some(code) = &failure.code {
        body.insert("error_code", &**code);
    }
}

pub(super) fn stats(stats: &BusStats) -> BeamObject {
    let mut body = BeamObject::new();
    body.insert("total", count(stats.by_state.values().sum()));
    for state in [
        State::Queued,
        State::Received,
        State::Dispatched,
        State::Delivered,
        State::Acked,
        State::Failed,
        State::DeadLetter,
    ] {
        let number = stats.by_state.get(&state).copied().unwrap_or_default();
        body.insert(state_word(state), count(number));
    }
    let agents = stats.by_agent.iter().map(|(beam_id, traffic)| {
        let traffic = BeamValue::object([
            ("sent", count(traffic.sent)),
            ("received", count(traffic.received)),
        ]);
        (beam_id.as_str().into(), traffic)
    });
    body.insert("by_agent", agents.collect::<BeamObject>());
    body.insert("last_24h", count(stats.last_day));
    body
}

/// The data of an event.
pub(super) fn event(event: &MessageEvent) -> BeamObject {
    let mut view = BeamObject::new();
    view.insert("message_id", event.id.to_string());
    view.insert("intent", &*event.intent);
    view.insert("status", state_word(event.state));
    view.insert("previous_status", event.previous.map(state_word));
    view.insert("at", seconds(event.at));
    view
}

pub(super) fn seconds(at: Micros) -> f64 {
    at.seconds()
}

fn count(count: u64) -> BeamValue {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

fn number(count: usize) -> BeamValue {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}
