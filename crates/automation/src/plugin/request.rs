//! The request to a plugin: one JSON object on one line.
//!
//! Every field that protocol 2 requires is present, and `event` only for `handle`.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::response::EmittedEvent;

const PROTOCOL: u8 = 2;
/// The command that receives an event.
pub const HANDLE: &str = "handle";
/// The field of the context that holds the name of the plugin.
const PLUGIN_KEY: &str = "ductile_plugin";

#[derive(Clone, Debug)]
pub struct PluginRequest {
    pub job_id: String,
    /// An alias receives its own name.
    pub plugin: String,
    pub command: String,
    pub config: Map<String, Value>,
    pub state: Map<String, Value>,
    /// The baggage, and the control keys of a pipeline.
    pub context: Map<String, Value>,
    /// Sent with `handle` only.
    pub event: Option<PluginEvent>,
    pub payload: Option<Map<String, Value>>,
    /// For the plugin's information; the runner enforces it.
    pub deadline_at: Timestamp,
}

/// An event for a plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginEvent {
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    pub source: String,
    #[serde(serialize_with = "as_text")]
    pub timestamp: Timestamp,
    pub event_id: String,
}

impl PluginEvent {
    /// Source, time and id are set by the core, whatever the plugin wrote.
    pub fn stamped(
        emitted: EmittedEvent,
        source: String,
        timestamp: Timestamp,
        event_id: String,
    ) -> Self {
        Self {
            kind: emitted.kind,
            payload: emitted.payload,
            dedupe_key: emitted.dedupe_key,
            source,
            timestamp,
            event_id,
        }
    }
}

#[derive(Serialize)]
struct PluginRequestBody<'a> {
    protocol: u8,
    job_id: &'a str,
    command: &'a str,
    config: &'a Map<String, Value>,
    state: &'a Map<String, Value>,
    context: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a PluginEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Map<String, Value>>,
    #[serde(serialize_with = "as_text")]
    deadline_at: Timestamp,
}

impl PluginRequest {
    /// The bytes for the plugin's standard input.
    pub fn to_line(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        context.insert(PLUGIN_KEY.to_owned(), Value::from(self.plugin.as_str()));
        let envelope = PluginRequestBody {
            protocol: PROTOCOL,
            job_id: &self.job_id,
            command: &self.command,
            config: &self.config,
            state: &self.state,
            context,
            event: self.event.as_ref().filter(|_| self.command == HANDLE),
            payload: self.payload.as_ref(),
            deadline_at: self.deadline_at,
        };
        let mut line =
            serde_json::to_vec(&envelope).expect("texts, JSON values and times always serialise");
        line.push(b'\n');
        line
    }
}

/// RFC 3339, in UTC.
fn as_text<S: Serializer>(instant: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(instant)
}
