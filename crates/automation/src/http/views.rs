//! The JSON shapes of the protocol, rendered from the types of the runtime. The command line shows the same shapes.
//!
//! A member without a value is left out, unless its shape says otherwise.

pub mod catalogue;
pub mod events;
pub mod jobs;
pub mod operate;
pub mod service;

use jiff::Timestamp;
use serde_json::{Map, Value};

fn timestamp_json(at: Timestamp) -> Value {
    Value::String(format!("{at:.9}"))
}

/// The output of a plugin: parsed if it is JSON, otherwise as text.
fn parsed(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|_| Value::String(stdout.to_owned()))
}

/// Inserts the value if it is present.
fn put(object: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}
