//! Facts: the append-only history. Every transition adds one; timelines, streams and receipts are made of nothing else.

use crate::ids::{FactSeq, IntentId, Micros, Seq};
use crate::profile::Face;
use crate::state::{Cause, State, Verb};

/// What happened to one intent at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub seq: FactSeq,
    pub intent: Seq,
    /// The fact of the same intent before this one.
    pub previous: Option<FactSeq>,
    /// Each face keeps its facts as long as its own rules say.
    pub face: Face,
    /// Key id of the publisher, who may follow it.
    pub owner: String,
    pub at: Micros,
    pub verb: Verb,
    /// `None` for the admission.
    pub from: Option<State>,
    pub to: State,
    pub cause: Cause,
    pub attempt: u32,
    /// Key id or operator that asked; `None` when time did it.
    pub actor: Option<String>,
    pub detail: Option<String>,
}

/// A fact with what a reader of a stream needs to know of its intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub fact: Fact,
    pub id: IntentId,
    pub namespace: String,
    pub goal: String,
    /// What it belongs to, if it was brought about by another one.
    pub parent: Option<IntentId>,
}
