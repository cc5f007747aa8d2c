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
    /// Key id or operator that asked; `None` for a passed deadline.
    pub actor: Option<String>,
    pub detail: Option<String>,
}

/// A fact with the fields of its intent that a reader of a stream needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub fact: Fact,
    pub id: IntentId,
    pub namespace: String,
    pub goal: String,
    /// The intent that caused this one, if any.
    pub parent: Option<IntentId>,
}
