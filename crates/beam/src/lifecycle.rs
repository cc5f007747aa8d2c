//! The lifecycle as Beam describes it: states by their words, legal pairs of states, and the groups derived from them.
//!
//! Invariant: which pairs are legal is decided by the kernel's two Beam profiles alone; this module adds the words and the text
//! of the error. Groups of states are computed and never stored.

use std::fmt;

use consign_kernel::profile::{Profile, ProfileId};
use consign_kernel::state::{Cause, State};

pub mod legacy;

#[cfg(test)]
mod tests;

/// The word of a state. Both profiles use the same eight.
pub fn state_word(state: State) -> &'static str {
    ProfileId::BeamDirectory
        .profile()
        .word(state, Cause::None)
        .expect("Beam has a word for every state")
}

/// The state with this word; case counts.
pub fn parse_state(word: &str) -> Option<State> {
    State::ALL
        .iter()
        .copied()
        .find(|state| state_word(*state) == word)
}

/// The object whose state changes. It selects the profile and is named in the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransitionContext {
    /// An intent of the directory.
    Intent,
    /// The log entry of an intent.
    IntentLog { nonce: String },
    /// The trace of an intent.
    Trace { nonce: String },
    /// A message of the bus.
    Message,
    /// A stored message of the bus.
    StoredMessage { id: String },
}

impl TransitionContext {
    pub fn profile(&self) -> &'static Profile {
        match self {
            Self::Intent | Self::IntentLog { .. } | Self::Trace { .. } => {
                ProfileId::BeamDirectory.profile()
            }
            Self::Message | Self::StoredMessage { .. } => ProfileId::BeamBus.profile(),
        }
    }
}

impl fmt::Display for TransitionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intent => write!(f, "intent lifecycle"),
            Self::IntentLog { nonce } => write!(f, "intent {nonce}"),
            Self::Trace { nonce } => write!(f, "trace {nonce}"),
            Self::Message => write!(f, "beam message lifecycle"),
            Self::StoredMessage { id } => write!(f, "message {id} lifecycle"),
        }
    }
}

/// The profile has no step between the two states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid {context} transition from {} to {}",
    from.map_or("start", state_word),
    state_word(*to)
)]
pub struct InvalidTransition {
    pub context: TransitionContext,
    /// `None` if there was no earlier state.
    pub from: Option<State>,
    pub to: State,
}

/// Whether the profile of the context joins the two states; a state may follow itself. Some pairs are legal for one verb only,
/// such as the requeue of a dead letter: the kernel checks that when the step is taken.
pub fn check_transition(
    context: TransitionContext,
    from: Option<State>,
    to: State,
) -> Result<(), InvalidTransition> {
    if context.profile().joins(from, to) {
        Ok(())
    } else {
        Err(InvalidTransition { context, from, to })
    }
}

/// How far an intent has come, for statistics and filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutcomeBucket {
    Success,
    Error,
    InFlight,
}

impl OutcomeBucket {
    pub const ALL: [Self; 3] = [Self::Success, Self::Error, Self::InFlight];

    pub const fn of(state: State) -> Self {
        match state {
            State::Acked => Self::Success,
            State::Failed | State::DeadLetter => Self::Error,
            State::Received
            | State::Validated
            | State::Queued
            | State::Dispatched
            | State::Delivered => Self::InFlight,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::InFlight => "in_flight",
        }
    }
}

/// Whether the state ends an intent or a message, unless it is retried or requeued.
pub fn is_terminal(state: State) -> bool {
    OutcomeBucket::of(state) != OutcomeBucket::InFlight
}

/// The intents that a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFilter {
    All,
    Bucket(OutcomeBucket),
    State(State),
}

impl StatusFilter {
    /// The filter with this word; no word is no filter. The words of the buckets and `pending` mean more than the state that they
    /// stand for in a legacy row. `None` for an unknown word, which no intent matches.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "" | "all" => Some(Self::All),
            "pending" => Some(Self::Bucket(OutcomeBucket::InFlight)),
            _ => OutcomeBucket::ALL
                .into_iter()
                .find(|bucket| bucket.word() == word)
                .map(Self::Bucket)
                .or_else(|| legacy::normalise_status(word).map(Self::State)),
        }
    }

    pub fn matches(self, state: State) -> bool {
        match self {
            Self::All => true,
            Self::Bucket(bucket) => OutcomeBucket::of(state) == bucket,
            Self::State(wanted) => state == wanted,
        }
    }
}
