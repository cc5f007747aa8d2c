//! Once-keys, the mechanism for "not twice": scope and key lead to the first fingerprint and the first answer.
//!
//! Invariant: a once-row carries all that its replay needs and outlives the row it guards.

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
}

impl FirstUse {
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
    ];

    pub const fn code(self) -> u8 {
        match self {
            Self::IntentIdempotency => 1,
            Self::IntentNonce => 2,
            Self::BeamNonce => 3,
            Self::BeamBusNonce => 4,
        }
    }

    /// The face whose housekeeping removes the keys of this scope.
    pub const fn face(self) -> Face {
        match self {
            Self::IntentIdempotency | Self::IntentNonce => Face::Intent,
            Self::BeamNonce | Self::BeamBusNonce => Face::Beam,
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
            Self::IntentIdempotency | Self::BeamNonce | Self::BeamBusNonce => false,
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
