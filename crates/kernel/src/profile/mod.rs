//! Which step of the lifecycle is legal for whom, and what it is called on the wire: tables only.
//!
//! Invariant: a (state, verb) pair that has no row is refused, and a terminal state is left only by
//! the pairs a profile lists as its operator's or its exits. This module decides nothing: where a
//! row offers several targets, the rule for the verb chooses among them.

mod automation;
mod beam;
mod diagram;
mod intent;
mod mesh;
mod transaction;

#[cfg(test)]
mod tests;

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
    }
}

/// One legal step: asked for `on` in `from`, an intent may end up in any of `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub from: State,
    pub on: Verb,
    pub to: &'static [State],
}

/// What happens to a row whose lease ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The next claim takes it at once, without back-off; an exhausted one is dead as soon as
    /// anybody looks at it; only the cleanup pass requeues with back-off.
    TakeOver,
    /// Queued again, due now.
    DueNow,
    /// Queued again, due after this pause.
    DueIn { ms: u32 },
    /// The attempt fails as timed out, and the retry policy says what follows.
    FailAttempt,
    /// Its state stays: the effect may have happened. Only the lease may be taken again.
    StayLeased,
    /// Nobody ever holds a lease on it.
    NoLease,
}

/// One protocol's share of the lifecycle: start edges, legal steps, words.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    pub id: ProfileId,
    pub face: Face,
    /// The states in which a new row may begin.
    pub start: &'static [State],
    pub rows: &'static [Row],
    /// The steps an operator may take by hand. Pages and commands that cross faces offer these only.
    pub operator: &'static [(State, Verb)],
    /// Steps out of a terminal state that the protocol itself names, no operator needed.
    pub exits: &'static [(State, Verb)],
    /// States that nothing but `operator` and `exits` leaves.
    pub terminal: &'static [State],
    /// Wire words. An entry without a cause is the word for every cause that has no entry.
    pub words: &'static [(State, Option<Cause>, &'static str)],
    pub expiry: Expiry,
    /// The number of an attempt is part of a name elsewhere, so none is given twice in the life of a row.
    pub numbers_attempts: bool,
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
        }
    }
}

impl Profile {
    /// The legal outcomes of a verb in a state, if it may be asked there at all.
    pub fn row(&self, from: State, on: Verb) -> Option<&'static Row> {
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
const fn row(from: State, on: Verb, to: &'static [State]) -> Row {
    Row { from, on, to }
}
