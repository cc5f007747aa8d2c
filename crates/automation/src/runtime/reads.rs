//! What people and programs ask about jobs, in the shapes of the protocol's HTTP interface.
//!
//! Invariant: nothing here changes anything, and every question looks at a bounded number of rows. What jobs carry may be large: lists
//! and counts are made of outlines, and whoever needs more holds it one job at a time. The faces and the command line show the same
//! shapes, so they are made in one place.

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

/// The words for where a job can be, as the protocol has them.
const STATUSES: [&str; 6] = [
    "queued",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "dead",
];

/// The word that a filter means; some have a second name.
pub fn parse_status(text: &str) -> Option<&'static str> {
    let meant = match text {
        "pending" => "queued",
        "ok" => "succeeded",
        "error" => "failed",
        other => other,
    };
    STATUSES.into_iter().find(|word| *word == meant)
}

/// The state in which jobs of this word are.
fn state_of(word: &str) -> Option<State> {
    match word {
        "queued" => Some(State::Queued),
        "running" => Some(State::Dispatched),
        "succeeded" => Some(State::Acked),
        "failed" | "timed_out" => Some(State::Failed),
        "dead" => Some(State::DeadLetter),
        _ => None,
    }
}

fn status_of(job: &Outline) -> &'static str {
    let word = job.profile.profile().word(job.state, job.cause);
    word.unwrap_or("queued")
}

pub(super) fn is_over(intent: &Intent) -> bool {
    intent.profile.profile().is_terminal(intent.state)
}

fn is_job(intent: &Intent) -> bool {
    intent.profile == ProfileId::Automation
}

/// Which attempt it is in, or will be.
fn attempt_of(job: &Outline) -> u32 {
    job.attempts + u32::from(job.state == State::Queued)
}

fn micros_json(at: Micros) -> Value {
    timestamp_json(timestamp(at))
}

fn timestamp_json(at: Timestamp) -> Value {
    Value::String(format!("{at:.9}"))
}

/// What a plugin printed, as JSON if it is that.
fn parsed(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|_| Value::String(stdout.to_owned()))
}

/// Adds what is there.
fn put(object: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_own_name_or_its_second_one_du_105() {
        for (text, word) in [
            ("queued", "queued"),
            ("pending", "queued"),
            ("ok", "succeeded"),
            ("error", "failed"),
            ("timed_out", "timed_out"),
            ("dead", "dead"),
        ] {
            assert_eq!(parse_status(text), Some(word));
            assert!(state_of(word).is_some());
        }
        for text in ["", "Queued", "completed", "queued "] {
            assert_eq!(parse_status(text), None, "{text}");
        }
    }
}
