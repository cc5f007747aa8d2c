//! Once-keys, the mechanism for "not twice": scope and key lead to the first fingerprint and the first answer.
//!
//! Invariant: a once-row carries all that its replay needs and outlives the row it guards.

use serde::{Deserialize, Serialize};

use crate::ids::{IntentId, Micros};
use crate::profile::Face;

/// The rule that a once-key belongs to. Codes are stored; a retired one is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `Idempotency-Key` of the Intent Protocol.
    IntentIdempotency,
    /// `X-Nonce` of a signed Intent Protocol request.
    IntentNonce,
    /// The nonce of an intent in a Beam directory.
    BeamNonce,
    /// The nonce of a message on the Beam bus.
    BeamBusNonce,
    /// The id that a client chose for a message of a mesh, by mesh. The answer is a [`DedupeAnswer`].
    MeshMessage,
    /// The id that a client chose for a message in the outbox of a mesh daemon, by mesh.
    MeshOutbox,
}

impl FirstUse {
    /// The message that it guards does not exist any more.
    pub fn forget_history(&mut self) {
        if let Some(answer) = DedupeAnswer::parse(&self.answer) {
            let gone = DedupeAnswer {
                history_available: false,
                ..answer
            };
            self.answer = gone.text();
        }
    }

    /// The use of a key without fingerprint and answer.
    pub const fn bare(key: OnceKey, until: Micros) -> Self {
        Self {
            key,
            fingerprint: [0; 32],
            intent: None,
            answer: String::new(),
            until,
        }
    }
}

impl Scope {
    pub const ALL: &[Self] = &[
        Self::IntentIdempotency,
        Self::IntentNonce,
        Self::BeamNonce,
        Self::BeamBusNonce,
        Self::MeshMessage,
        Self::MeshOutbox,
    ];

    pub const fn code(self) -> u8 {
        match self {
            Self::IntentIdempotency => 1,
            Self::IntentNonce => 2,
            Self::BeamNonce => 3,
            Self::BeamBusNonce => 4,
            Self::MeshMessage => 5,
            Self::MeshOutbox => 6,
        }
    }

    /// The face whose housekeeping removes the keys of this scope.
    pub const fn face(self) -> Face {
        match self {
            Self::IntentIdempotency | Self::IntentNonce => Face::Intent,
            Self::BeamNonce | Self::BeamBusNonce => Face::Beam,
            Self::MeshMessage | Self::MeshOutbox => Face::Mesh,
        }
    }

    /// The scopes that a purge of the face removes. Nonces stay until they expire: a signed request that was carried out before
    /// a purge must not be carried out again after it.
    pub fn purged(face: Face) -> impl Iterator<Item = Self> {
        let all = Self::ALL.iter().copied();
        all.filter(move |scope| scope.face() == face && *scope != Self::IntentNonce)
    }

    /// Whether a row of this scope holds no fingerprint and no answer.
    pub const fn is_bare(self) -> bool {
        match self {
            Self::IntentIdempotency
            | Self::BeamNonce
            | Self::BeamBusNonce
            | Self::MeshMessage
            | Self::MeshOutbox => false,
            Self::IntentNonce => true,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|scope| scope.code() == code)
    }
}

/// What must not happen twice, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnceKey {
    pub scope: Scope,
    /// The owner of the key: the same text under another owner is another key.
    pub owner: String,
    pub key: String,
}

/// The first use of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstUse {
    pub key: OnceKey,
    pub fingerprint: [u8; 32],
    pub intent: Option<IntentId>,
    /// What the face needs besides the id to repeat the first answer.
    pub answer: String,
    pub until: Micros,
}

/// Keys that would expire later than this, in the year 9892, never expire: databases have calendars that end.
const LAST_END: Micros = Micros(250_000_000_000_000_000);

/// The end of a key that is used now.
pub(crate) fn until(now: Micros, lifetime_us: i64) -> Micros {
    let until = now.plus(lifetime_us);
    if until > LAST_END { Micros::MAX } else { until }
}

/// What a mesh remembers of a message besides its id: the answer of a [`FirstUse`] of [`Scope::MeshMessage`].
///
/// Stores keep its fields in columns of their own, so the text has exactly one form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupeAnswer {
    /// `topic`, `dm` or `queue`.
    pub destination_kind: String,
    pub destination_ref: String,
    /// In microseconds.
    pub first_seen_at: i64,
    /// Whether the message still exists.
    pub history_available: bool,
}

impl DedupeAnswer {
    pub const KINDS: [&str; 3] = ["topic", "dm", "queue"];

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("texts, a number and a boolean are JSON")
    }

    /// `None` if the text is not one that [`DedupeAnswer::text`] returned.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text)
            .ok()
            .filter(|answer: &Self| Self::KINDS.contains(&answer.destination_kind.as_str()))
    }
}

/// How a key compares with its first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    First,
    Same(&'a FirstUse),
    Different(&'a FirstUse),
}

/// An expired row counts as never written.
pub fn compare<'a>(
    stored: Option<&'a FirstUse>,
    fingerprint: &[u8; 32],
    now: Micros,
) -> Verdict<'a> {
    match stored {
        Some(row) if row.until > now => {
            if row.fingerprint == *fingerprint {
                Verdict::Same(row)
            } else {
                Verdict::Different(row)
            }
        }
        Some(_) | None => Verdict::First,
    }
}
