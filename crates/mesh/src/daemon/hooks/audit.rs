//! What is reported about the run of a hook.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{HookEnd, HookOrigin};
use crate::daemon::log::rfc3339_ms;

/// The audit line, which is also the data of the event `hook_executed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookAudit {
    pub hook: String,
    pub event_id: String,
    pub exit: i32,
    pub duration_ms: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub replied: bool,
    pub capability_calls: u64,
    pub timed_out: bool,
    /// When it ended.
    pub ts: String,
}

/// A reply that the daemon posts: to the topic of the event, otherwise to its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookReply {
    /// In the form of `to` of a request.
    pub to: String,
    pub message: String,
    pub reply_to_id: Option<String>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRun {
    pub audit: HookAudit,
    pub reply: Option<HookReply>,
}

impl HookAudit {
    pub(super) fn new(hook: &str, event_id: String, end: &HookEnd, calls: u64) -> Self {
        Self {
            hook: hook.to_owned(),
            event_id,
            exit: end.exit,
            duration_ms: u64::try_from(end.elapsed.as_millis()).unwrap_or(u64::MAX),
            stdout_bytes: end.stdout.bytes,
            stderr_bytes: end.stderr.bytes,
            replied: false,
            capability_calls: calls,
            timed_out: end.timed_out,
            ts: rfc3339_ms(Timestamp::now()),
        }
    }

    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("strings and numbers are JSON")
    }
}

impl HookReply {
    /// `None` for an event without a sender.
    pub(super) fn new(
        message: String,
        event: &Map<String, Value>,
        origin: &HookOrigin,
    ) -> Option<Self> {
        let topic = origin.topic.as_ref().map(|topic| format!("#{topic}"));
        let sender = origin.sender.map(|sender| sender.to_string());
        let reply_to_id = event.get("broker_message_id").and_then(Value::as_str);
        Some(Self {
            to: topic.or(sender)?,
            message,
            reply_to_id: reply_to_id.map(str::to_owned),
        })
    }
}
