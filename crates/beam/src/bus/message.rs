//! A stored message as readers see it.

use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::{Intent, ResultKind};
use consign_kernel::state::{Cause, State};

use crate::text::{self, BeamObject, BeamValue};

/// The error of a message whose attempt was interrupted by the end of the process.
pub(crate) const RECOVERED: &str = "Recovered after message bus restart";

/// What a message has besides the columns of its row. Its text is the payload of the row.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageContent {
    pub nonce: String,
    pub payload: BeamObject,
    pub trace_id: Option<String>,
    /// Only imported messages have it.
    pub metadata: Option<BeamValue>,
}

impl MessageContent {
    /// Members that are absent are left out.
    pub fn to_text(&self) -> String {
        let mut object = BeamObject::new();
        object.insert("nonce", &*self.nonce);
        object.insert("payload", self.payload.clone());
        if let Some(trace_id) = &self.trace_id {
            object.insert("trace_id", &**trace_id);
        }
        if let Some(metadata) = &self.metadata {
            object.insert("metadata", metadata.clone());
        }
        BeamValue::Object(object).to_text()
    }

    pub fn parse(stored: &str) -> Option<Self> {
        let value = text::parse(stored.as_bytes()).ok()?;
        let trace_id = value.get("trace_id").and_then(BeamValue::as_str);
        Some(Self {
            nonce: value.get("nonce")?.as_str()?.to_owned(),
            payload: value.get("payload")?.as_object()?.clone(),
            trace_id: trace_id.map(str::to_owned),
            metadata: value.get("metadata").cloned(),
        })
    }
}

/// A message with everything that history shows.
#[derive(Clone, Debug, PartialEq)]
pub struct BusMessage {
    pub id: IntentId,
    pub content: MessageContent,
    pub sender: String,
    pub recipient: String,
    pub intent: String,
    pub state: State,
    pub priority: i32,
    /// Attempts after which the message was queued again.
    pub retry_count: u32,
    pub max_retries: u32,
    /// Only of a queued message.
    pub next_retry_at: Option<Micros>,
    pub created_at: Micros,
    pub delivered_at: Option<Micros>,
    pub acked_at: Option<Micros>,
    pub failed_at: Option<Micros>,
    pub error: Option<String>,
    /// The recipient's response, as JSON.
    pub response: Option<String>,
}

impl BusMessage {
    /// `None` if the row is no message of a bus.
    pub fn of(row: &Intent) -> Option<Self> {
        let settled_in = |states: &[State]| row.settled_at.filter(|_| states.contains(&row.state));
        Some(Self {
            id: row.id,
            content: MessageContent::parse(&row.payload)?,
            sender: row.ties.sender.clone()?,
            recipient: row.owner.clone(),
            intent: row.goal.clone(),
            state: row.state,
            priority: row.priority,
            retry_count: retry_count(row),
            max_retries: row.attempts_max,
            next_retry_at: (row.state == State::Queued).then_some(row.run_at),
            created_at: row.created_at,
            delivered_at: was_delivered(row).then_some(row.run_at),
            acked_at: settled_in(&[State::Acked]),
            failed_at: settled_in(&[State::Failed, State::DeadLetter]),
            error: error(row),
            response: response(row),
        })
    }
}

/// The response of a recipient is any JSON, as it came. That of a worker is an object: a result that is none is the member
/// `result` of one.
fn response(row: &Intent) -> Option<String> {
    let result = row.result.as_ref()?;
    let is_object = result.kind == ResultKind::Json && result.body.starts_with('{');
    if is_object || !is_held_by_worker(row) {
        return Some(result.body.clone());
    }
    let value = match result.kind {
        ResultKind::Json => result.body.clone(),
        ResultKind::Text => BeamValue::from(&*result.body).to_text(),
    };
    Some(format!(r#"{{"result":{value}}}"#))
}

/// The holders of nodes and imports consist of two parts, see [`consign_kernel::command::Recover::holder`]; that of a worker is the id of its key.
fn is_held_by_worker(row: &Intent) -> bool {
    let holder = row.holder.as_deref();
    holder.is_some_and(|holder| !holder.contains('/'))
}

/// A row that is queued has no holder. One with a holder counts the attempt that is not, or not yet, followed by another.
pub(super) fn retry_count(row: &Intent) -> u32 {
    row.attempts.saturating_sub(u32::from(row.holder.is_some()))
}

/// A message that failed before it was delivered has no holder, because it was received or queued.
fn was_delivered(row: &Intent) -> bool {
    match row.state {
        State::Delivered | State::Acked => true,
        State::Failed => row.holder.is_some(),
        State::Received
        | State::Validated
        | State::Queued
        | State::Dispatched
        | State::DeadLetter => false,
    }
}

fn error(row: &Intent) -> Option<String> {
    match (row.state, row.cause) {
        (State::Delivered | State::Acked, _) => None,
        (_, Cause::Recovered) => Some(RECOVERED.to_owned()),
        _ => row.last_error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_survives_its_text_and_keeps_the_order_of_the_payload() {
        let payload = text::parse(r#"{"z":1,"a":{"2":0,"b":[1e21]},"1":"\ud800"}"#.as_bytes());
        let BeamValue::Object(payload) = payload.unwrap() else {
            panic!("an object was parsed");
        };
        for (trace_id, metadata) in [
            (None, None),
            (Some("t-1".to_owned()), Some(BeamValue::Null)),
        ] {
            let content = MessageContent {
                nonce: "n-1".to_owned(),
                payload: payload.clone(),
                trace_id,
                metadata,
            };
            let parsed = MessageContent::parse(&content.to_text()).unwrap();
            assert_eq!(parsed, content);
            let printed = BeamValue::Object(parsed.payload).to_text();
            assert_eq!(printed, r#"{"1":"\ud800","z":1,"a":{"2":0,"b":[1e+21]}}"#);
        }
        assert_eq!(MessageContent::parse(r#"{"nonce":"n"}"#), None);
        assert_eq!(MessageContent::parse("no json"), None);
    }
}
