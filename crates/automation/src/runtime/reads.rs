//! Queries about jobs, in the JSON shapes of the protocol's HTTP interface.
//!
//! Invariant: a query changes nothing and reads a bounded number of rows. Payloads may be large, so lists and counts use
//! outlines, and whole rows are held one at a time. The HTTP face and the command line show the same shapes, so they are built
//! here.

mod catalogue;
mod checks;
mod inspect;
mod jobs;
mod logs;
mod overview;
pub(super) mod response_budget;
mod runs;

use consign_engine::Outline;
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub use jobs::{JobFilter, JobTree, TREE_MAX};
pub use logs::{LogCursor, LogFilter};

use super::lifecycle::timestamp;

pub(super) fn is_over(intent: &Intent) -> bool {
    intent.profile.profile().is_terminal(intent.state)
}

fn is_job(intent: &Intent) -> bool {
    intent.profile == ProfileId::Automation
}

/// The number of the current or next attempt.
fn attempt_of(job: &Outline) -> u32 {
    job.attempts + u32::from(job.state == State::Queued)
}

fn micros_json(at: Micros) -> Value {
    timestamp_json(timestamp(at))
}

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
