//! The response of a plugin: one JSON object on its standard output.
//!
//! Any input yields a [`PluginResponse`], a [`PluginError`] or a parse error. A [`PluginError`] has no events and no state, so
//! they cannot be routed or stored by mistake. Unknown fields are ignored, and `null` counts as absent.

use serde_json::{Map, Value};

use crate::nesting::is_too_deep;

#[derive(Clone, Debug, PartialEq)]
pub enum PluginReply {
    Ok(PluginResponse),
    Error(PluginError),
}

#[derive(Clone, Debug, PartialEq)]
pub struct PluginResponse {
    /// Never blank.
    pub result: String,
    pub events: Vec<EmittedEvent>,
    /// Empty if nothing changes.
    pub state_updates: Map<String, Value>,
    pub logs: Vec<LogLine>,
}

/// The plugin reported a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginError {
    pub error: String,
    pub retry: bool,
    pub logs: Vec<LogLine>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EmittedEvent {
    pub kind: String,
    pub payload: Value,
    pub dedupe_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub level: Level,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The maximum number of events in one response.
const EVENTS_MAX: usize = 1_000;
/// The maximum total size of the copies of `result` in events.
const COPIES_BYTES_MAX: usize = 32 << 20;
const ERROR_BYTES_MAX: usize = 4 << 10;
const SHALLOW: &str = "nested at most 64 levels deep";

/// Why the output is not a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the plugin printed nothing on its standard output")]
    Empty,
    #[error("the plugin's standard output is not one JSON object: {0}")]
    Json(String),
    #[error("the plugin's response violates the protocol: `{member}` must be {expected}")]
    Member {
        member: String,
        expected: &'static str,
    },
}

pub fn parse(stdout: &[u8]) -> Result<PluginReply, Error> {
    if stdout.trim_ascii().is_empty() {
        return Err(Error::Empty);
    }
    let value: Value =
        serde_json::from_slice(stdout).map_err(|error| Error::Json(error.to_string()))?;
    let Value::Object(mut members) = value else {
        return Err(Error::Json("it is another kind of JSON value".to_owned()));
    };
    let logs = list(&mut members, "logs")?;
    let logs = logs.iter().map(log_line).collect();
    match take(&mut members, "status")
        .as_ref()
        .and_then(Value::as_str)
    {
        Some("ok") => Ok(PluginReply::Ok(response(members, logs)?)),
        Some("error") => Ok(PluginReply::Error(refusal(members, logs)?)),
        _ => Err(broken("status", "`ok` or `error`")),
    }
}

fn response(mut members: Map<String, Value>, logs: Vec<LogLine>) -> Result<PluginResponse, Error> {
    let result = filled(&mut members, "result", "a text when `status` is `ok`")?;
    let events = list(&mut members, "events")?;
    if events.len() > EVENTS_MAX {
        return Err(broken("events", "at most 1000 events"));
    }
    // An event without its own `result` gets this one.
    let lacks_own = |event: &&Value| event["payload"].get("result").is_none();
    let copies = events.iter().filter(lacks_own).count();
    if copies.saturating_mul(result.len()) > COPIES_BYTES_MAX {
        return Err(broken(
            "result",
            "shorter, or with fewer events, because each event contains it",
        ));
    }
    let events = events
        .into_iter()
        .enumerate()
        .map(|(index, event)| emitted(index, event, &result))
        .collect::<Result<_, _>>()?;
    let state_updates = match take(&mut members, "state_updates") {
        None => Map::new(),
        Some(Value::Object(updates)) if !updates.values().any(is_too_deep) => updates,
        Some(Value::Object(_)) => return Err(broken("state_updates", SHALLOW)),
        Some(_) => return Err(broken("state_updates", "an object")),
    };
    Ok(PluginResponse {
        result,
        events,
        state_updates,
        logs,
    })
}

fn refusal(mut members: Map<String, Value>, logs: Vec<LogLine>) -> Result<PluginError, Error> {
    let error = filled(&mut members, "error", "a text when `status` is `error`")?;
    let error = shortened(error);
    let retry = match take(&mut members, "retry") {
        None => true,
        Some(Value::Bool(retry)) => retry,
        Some(_) => return Err(broken("retry", "true or false")),
    };
    Ok(PluginError { error, retry, logs })
}

/// An event without a type could never be routed and would be lost silently.
fn emitted(index: usize, event: Value, result: &str) -> Result<EmittedEvent, Error> {
    let Value::Object(mut members) = event else {
        return Err(broken(format!("events[{index}]"), "an object"));
    };
    let kind = filled(&mut members, "type", "a text")
        .map_err(|_| broken(format!("events[{index}].type"), "a text"))?;
    let dedupe_key = match take(&mut members, "dedupe_key") {
        None => None,
        Some(Value::String(key)) if !key.contains('\0') => {
            Some(key).filter(|key| !key.trim().is_empty())
        }
        Some(_) => return Err(broken(format!("events[{index}].dedupe_key"), "a text")),
    };
    let mut payload = take(&mut members, "payload").unwrap_or_else(|| Value::Object(Map::new()));
    if is_too_deep(&payload) {
        return Err(broken(format!("events[{index}].payload"), SHALLOW));
    }
    if let Value::Object(payload) = &mut payload {
        let entry = payload.entry("result");
        entry.or_insert_with(|| Value::from(result));
    }
    Ok(EmittedEvent {
        kind,
        payload,
        dedupe_key,
    })
}

/// The result is shown in tables, logs and notifications; the whole output is stored separately.
fn shortened(mut error: String) -> String {
    if error.len() > ERROR_BYTES_MAX {
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
        error.push('…');
    }
    error
}

/// Logs are for people: a malformed line is shown as it is and is no failure.
fn log_line(line: &Value) -> LogLine {
    let text = |value: &Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    let level = match line.get("level").and_then(Value::as_str) {
        Some("debug") => Level::Debug,
        Some("warn" | "warning") => Level::Warn,
        Some("error") => Level::Error,
        _ => Level::Info,
    };
    let message = text(line.get("message").unwrap_or(line));
    LogLine { level, message }
}

fn filled(
    members: &mut Map<String, Value>,
    name: &str,
    expected: &'static str,
) -> Result<String, Error> {
    match take(members, name) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        _ => Err(broken(name, expected)),
    }
}

fn list(members: &mut Map<String, Value>, name: &str) -> Result<Vec<Value>, Error> {
    match take(members, name) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(broken(name, "a list")),
    }
}

fn take(members: &mut Map<String, Value>, name: &str) -> Option<Value> {
    members.remove(name).filter(|value| !value.is_null())
}

fn broken(member: impl Into<String>, expected: &'static str) -> Error {
    Error::Member {
        member: member.into(),
        expected,
    }
}
