//! Legal steps, wire words and policies of each protocol: tables only.
//!
//! Invariant: a (state, verb) pair that has no row is refused, and a terminal state is left only by
//! the pairs a profile lists as its operator's or its exits. This module decides nothing: where a
//! row offers several targets, the rule for the verb chooses among them.

mod automation;
mod beam;
mod broker;
mod diagram;
mod intent;
mod mesh;
mod transaction;

#[cfg(test)]
mod tests;

use crate::ids::Micros;
use crate::once;
use crate::record;
use crate::retry::Backoff;
use crate::state::{Cause, State, Verb, stored};

pub use diagram::{diagram, diagrams};

stored! {
    /// A protocol that reaches the ledger.
    Face {
        Intent = 0 => "intent",
        Automation = 1 => "automation",
        Transaction = 2 => "transaction",
        Mesh = 3 => "mesh",
        Beam = 4 => "beam",
    }
}

stored! {
    /// The profile a stored row lives under.
    ProfileId {
        Intent = 0 => "intent",
        Automation = 1 => "automation",
        MeshOutbox = 2 => "mesh_outbox",
        BeamDirectory = 3 => "beam_directory",
        BeamBus = 4 => "beam_bus",
        AtpPermission = 5 => "atp_permission",
        AtpTransaction = 6 => "atp_transaction",
        MeshMessage = 7 => "mesh_message",
        MeshDelivery = 8 => "mesh_delivery",
        MeshQueue = 9 => "mesh_queue",
    }
}

/// One legal step: asked for `on` in `from`, an intent may end up in any of `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegalStep {
    pub from: State,
    pub on: Verb,
    pub to: &'static [State],
}

/// What happens to a row whose lease ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The next claim takes it at once, without back-off; an exhausted one is dead as soon as
    /// it is read or swept; only the cleanup pass requeues with back-off.
    TakeOver,
    /// Queued again, due now.
    DueNow,
    /// Queued again, due since it was due before: it keeps its place in the order.
    InPlace,
    /// Queued again, due after this pause.
    DueIn { ms: u32 },
    /// The attempt fails as timed out, and the retry policy decides what follows.
    FailAttempt,
    /// The row fails as timed out. Only its sender or an operator starts it again.
    Fail,
    /// Its state stays: the effect may have happened. Only the lease may be taken again.
    StayLeased,
    /// Its rows are never leased.
    NoLease,
}

/// The source of the jitter in a retry delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrySeed {
    /// The entropy of the request.
    Random,
    /// This member of the payload, a text, so that every node computes the same delay; without one, the id of the row.
    OfMember(&'static str),
}

/// How long a settled row is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// At least this long; a cleanup pass may ask for less.
    ForUs(i64),
    /// It has no deadline, so no pass over settled rows reads it.
    Forever,
}

/// What happens to a row that waits past the end of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeEnd {
    /// A life has no end, whatever the admission asks for.
    Never,
    /// A queued row can no longer be claimed, and the cleanup pass deletes it.
    Park,
    /// It is removed. One that begins as received and is not delivered by its `run_at` is removed then.
    Remove,
    /// It becomes a dead letter with a fact. The reason, if there is one, becomes its error.
    Dead { reason: Option<&'static str> },
}

/// The clock by which a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeClock {
    Engine,
    /// The wall clock, for ends that a party outside signed.
    Wall,
}

/// What a delivered row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Its holder, whose lease continues; after that lease any holder may take it.
    Claimable,
    /// The recipient's acknowledgement, or a claim that names the recipient: such a claim queues the row again and takes it.
    /// The delivery ends the lease, and no other claim finds the row. Its `run_at` is the time of the delivery from then on.
    AwaitsAck,
    /// The recipient's acknowledgement, until the lease that delivered it runs out. No claim finds the row.
    AwaitsAckInLease,
    /// Nothing: it rests without a lease, and no claim finds it.
    Rests,
}

/// What a holder that completes a row reports about its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Nothing: only a row whose state allows it is completed.
    Alone,
    /// A row that was not delivered is delivered and completed, in one commit with a fact for each.
    Delivers,
}

/// What becomes of a row that ends before it is validated: it ends without consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconsented {
    /// It is kept like any other.
    Kept,
    /// So long after the end of its life the row, its facts and the record of this kind under its goal are removed. Until
    /// then the same cannot be admitted again.
    Removed { after_us: i64, record: record::Kind },
}

/// One protocol's share of the lifecycle: start edges, legal steps, words, policies.
#[derive(Debug)]
pub struct Profile {
    pub id: ProfileId,
    pub face: Face,
    /// The states in which a new row may begin.
    pub start: &'static [State],
    pub rows: &'static [LegalStep],
    /// The steps an operator may take. Pages and commands that cross faces offer these only.
    pub operator: &'static [(State, Verb)],
    /// The steps that need no lease, taken by [`crate::command::Advance`].
    pub unleased: &'static [(State, Verb)],
    /// Steps out of a terminal state that the protocol itself names, no operator needed.
    pub exits: &'static [(State, Verb)],
    /// States that nothing but `operator` and `exits` leaves.
    pub terminal: &'static [State],
    /// Wire words. An entry without a cause is the word for every cause that has no entry.
    pub words: &'static [(State, Option<Cause>, &'static str)],
    /// Why a cancelled row is dead. One that was aborted is never cancelled again.
    pub cancel_cause: Cause,
    /// What the end of a lease means.
    pub expiry: Expiry,
    /// The delay before the next attempt, from the base that the row names.
    pub retry: fn(backoff_us: i64) -> Backoff,
    pub retry_seed: RetrySeed,
    pub retention: Retention,
    pub life_end: LifeEnd,
    pub life_clock: LifeClock,
    pub delivered: Delivery,
    pub completion: Completion,
    pub unconsented: Unconsented,
    /// The number of an attempt is part of a name elsewhere, so none is given twice in the life of a row.
    pub numbers_attempts: bool,
    /// An attempt that the end of its process interrupted counts, because the row may have been what ended the process.
    pub recovery_counts: bool,
    /// Facts that outlive the row refer to it by its number, so a cleanup pass keeps the id under that number.
    pub keeps_past_id: bool,
    /// The scope of the once-rows that outlive the rows and say whether they still exist; see [`crate::intent::Intent::dedupe_key`].
    /// Such a row also has a record of its history.
    pub dedupe: Option<once::Scope>,
}

impl Face {
    /// How long settled rows of this face are kept; `None` if forever. A cleanup pass of a face asks for one retention, so its
    /// profiles agree.
    pub fn retention_us(self) -> Option<i64> {
        ProfileId::ALL
            .iter()
            .map(|id| id.profile())
            .filter(|profile| profile.face == self)
            .find_map(|profile| match profile.retention {
                Retention::ForUs(us) => Some(us),
                Retention::Forever => None,
            })
    }
}

impl ProfileId {
    pub const fn profile(self) -> &'static Profile {
        match self {
            Self::Intent => &intent::INTENT,
            Self::Automation => &automation::AUTOMATION,
            Self::MeshOutbox => &mesh::OUTBOX,
            Self::BeamDirectory => &beam::DIRECTORY,
            Self::BeamBus => &beam::BUS,
            Self::AtpPermission => &transaction::PERMISSION,
            Self::AtpTransaction => &transaction::TRANSACTION,
            Self::MeshMessage => &broker::MESSAGE,
            Self::MeshDelivery => &broker::DELIVERY,
            Self::MeshQueue => &broker::QUEUE,
        }
    }
}

impl Profile {
    /// The legal outcomes of a verb in a state, if it may be asked there at all.
    pub fn row(&self, from: State, on: Verb) -> Option<&'static LegalStep> {
        self.rows
            .iter()
            .find(|row| row.from == from && row.on == on)
    }

    pub fn allows(&self, from: State, on: Verb, to: State) -> bool {
        self.row(from, on).is_some_and(|row| row.to.contains(&to))
    }

    /// Whether any verb joins the two; without a `from`, whether a row may begin in `to`. For
    /// protocols that describe their lifecycle as pairs of states.
    pub fn joins(&self, from: Option<State>, to: State) -> bool {
        match from {
            None => self.start.contains(&to),
            Some(from) => self
                .rows
                .iter()
                .any(|row| row.from == from && row.to.contains(&to)),
        }
    }

    /// The word on the wire. `None` for a state this profile never enters.
    pub fn word(&self, state: State, cause: Cause) -> Option<&'static str> {
        let named = |wanted: Option<Cause>| {
            self.words
                .iter()
                .find(|(of, given, _)| *of == state && *given == wanted)
                .map(|(_, _, word)| *word)
        };
        named(Some(cause)).or_else(|| named(None))
    }

    /// The end of a settled row's retention.
    pub fn retained_until(&self, settled_at: Micros) -> Micros {
        match self.retention {
            Retention::ForUs(us) => settled_at.plus(us),
            Retention::Forever => Micros::MAX,
        }
    }

    pub fn is_terminal(&self, state: State) -> bool {
        self.terminal.contains(&state)
    }

    /// What an operator may ask for in this state.
    pub fn operator_verbs(&self, state: State) -> impl Iterator<Item = Verb> + use<> {
        self.operator
            .iter()
            .filter(move |(from, _)| *from == state)
            .map(|(_, verb)| *verb)
    }
}

/// Keeps the tables to one line a row.
const fn row(from: State, on: Verb, to: &'static [State]) -> LegalStep {
    LegalStep { from, on, to }
}
