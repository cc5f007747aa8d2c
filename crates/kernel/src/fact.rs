//! Facts: the append-only history. Every transition adds one; timelines, streams and receipts are made of nothing else.

use crate::ids::{FactSeq, IntentId, Micros, SECOND_US, Seq};
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
    /// Engine time: it orders facts and ends their retention.
    pub at: Micros,
    /// How far the wall clock was ahead of engine time, in microseconds. Zero if they differed by less than a second.
    /// Negative by years for a fact that another system recorded.
    pub wall_offset_us: i64,
    pub verb: Verb,
    /// `None` for the admission.
    pub from: Option<State>,
    pub to: State,
    pub cause: Cause,
    pub attempt: u32,
    /// Key id or operator that asked; `None` for a passed deadline.
    pub actor: Option<String>,
    /// The id that the holder of the lease gave itself, in a step of the holder or at the end of its lease.
    pub worker: Option<String>,
    pub detail: Option<String>,
}

/// A smaller difference between the two clocks is not recorded: engine time is the time of day then.
const WALL_OFFSET_MIN_US: i64 = SECOND_US;

impl Fact {
    /// The wall clock when it happened: what timelines and receipts show.
    pub fn time_of_day(&self) -> Micros {
        self.at.plus(self.wall_offset_us)
    }

    /// What is recorded of the difference between the two clocks.
    pub(crate) fn wall_offset_us(now: Micros, wall: Micros) -> i64 {
        let offset_us = wall.0.saturating_sub(now.0);
        if offset_us.saturating_abs() < WALL_OFFSET_MIN_US {
            0
        } else {
            offset_us
        }
    }
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
