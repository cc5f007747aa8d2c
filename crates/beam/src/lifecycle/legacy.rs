//! Words that earlier versions of Beam stored, and the states that they mean now.
//!
//! Invariant: a row that was migrated is not changed by another migration.

use consign_kernel::state::State;
use serde_json::{Map, Value};

use super::{parse_state, state_word};

/// The state that a stored status means: one of the eight words, or a legacy word.
pub fn normalise_status(word: &str) -> Option<State> {
    parse_state(word).or(match word {
        "pending" => Some(State::Received),
        "success" => Some(State::Acked),
        "error" => Some(State::Failed),
        "expired" => Some(State::DeadLetter),
        _ => None,
    })
}

/// The state that a reader reports for a stored status. A row with an unknown word counts as received.
pub fn status_of_row(word: &str) -> State {
    normalise_status(word).unwrap_or(State::Received)
}

/// What the migration does with a row of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceMigration {
    Keep,
    /// Stage and status both become the word of the state.
    Becomes {
        state: State,
        /// The details of the row, with the former words as `legacyStage` and `legacyStatus`.
        details: Map<String, Value>,
    },
    Delete,
}

/// Decides about a row of a trace by its stored columns. Details that are not a JSON object are replaced.
pub fn migrate_trace(stage: &str, status: &str, details: Option<&str>) -> TraceMigration {
    let Some(state) = state_of_trace(stage, status) else {
        return TraceMigration::Delete;
    };
    let word = state_word(state);
    if stage == word && status == word {
        return TraceMigration::Keep;
    }
    let mut details: Map<String, Value> = details
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    details.insert("legacyStage".to_owned(), stage.into());
    details.insert("legacyStatus".to_owned(), status.into());
    TraceMigration::Becomes { state, details }
}

/// The state that a row of a trace means; none if the row has no place in a trace of states.
fn state_of_trace(stage: &str, status: &str) -> Option<State> {
    // A stage that is a status word is taken as it is: a `validated` row with status `error` stays validated.
    if let Some(state) = normalise_status(stage) {
        return Some(state);
    }
    match (stage, status) {
        ("sender_lookup", _) => Some(State::Received),
        ("dispatch", _) => Some(State::Dispatched),
        ("delivery" | "federation.relay", "success") => Some(State::Delivered),
        ("delivery" | "federation.relay" | "federation.resolve", "error") => Some(State::Failed),
        ("delivery" | "federation.relay" | "federation.resolve", _) => Some(State::Dispatched),
        ("completed", "success") => Some(State::Acked),
        ("completed", _) => Some(State::Failed),
        ("dedupe", _) => None,
        _ => normalise_status(status),
    }
}
