//! What travels in a copy: rows as the kernel knows them, in the order of their keys, and where the reading stands.
//!
//! Invariant: nothing here belongs to one database. How a row is stored is known to the two ends alone.

use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;
use consign_kernel::once;
use consign_kernel::record::Record;

use crate::Error;
use crate::ledger::Counter;

/// The parts of a ledger, in the order in which they are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerTable {
    Intents,
    Facts,
    /// Once-keys with an answer.
    Once,
    /// Once-keys of which nothing is remembered but that they were used. SQLite keeps them apart.
    Nonces,
    Records,
    Counts,
}

impl LedgerTable {
    pub const ALL: &[Self] = &[
        Self::Intents,
        Self::Facts,
        Self::Once,
        Self::Nonces,
        Self::Records,
        Self::Counts,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Intents => "intents",
            Self::Facts => "facts",
            Self::Once => "once",
            Self::Nonces => "nonces",
            Self::Records => "records",
            Self::Counts => "counts",
        }
    }
}

/// Rows of one table.
#[derive(Debug)]
pub(crate) enum Rows {
    Intents(Vec<(Intent, Option<Lanes>)>),
    Facts(Vec<Fact>),
    /// With or without an answer: of [`LedgerTable::Once`] and of [`LedgerTable::Nonces`].
    Once(Vec<once::Row>),
    Records(Vec<Record>),
    Counts(Vec<(Counter, i64)>),
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Intents(rows) => rows.len(),
            Self::Facts(rows) => rows.len(),
            Self::Once(rows) => rows.len(),
            Self::Records(rows) => rows.len(),
            Self::Counts(rows) => rows.len(),
        }
    }
}

/// Some rows, and where to go on behind them.
#[derive(Debug)]
pub(crate) struct RowPage {
    pub(crate) rows: Rows,
    /// `None` when there was nothing more. A page may be empty and still have a next one.
    pub(crate) next: Option<Cursor>,
}

/// The key of the last row that was read, as its source orders them. Only the source understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) numbers: [i64; 3],
    pub(crate) texts: [String; 2],
}

impl Cursor {
    /// Before the first row, also before one whose number is damaged.
    pub(crate) fn start() -> Self {
        Self {
            numbers: [i64::MIN; 3],
            texts: [String::new(), String::new()],
        }
    }

    pub(crate) fn number(number: i64) -> Self {
        Self {
            numbers: [number, 0, 0],
            ..Self::start()
        }
    }

    pub(crate) fn named(numbers: [i64; 3], first: &str, second: &str) -> Self {
        Self {
            numbers,
            texts: [first.to_owned(), second.to_owned()],
        }
    }
}

/// The lanes as they are stored with a row: all that the row can be claimed by, or none.
pub(crate) fn lanes(seq: u64, stored: [Option<i64>; 4]) -> Result<Option<Lanes>, Error> {
    match stored {
        [None, None, None, None] => Ok(None),
        [Some(own), Some(own_goal), public, public_goal] => Ok(Some(Lanes {
            own,
            own_goal,
            public,
            public_goal,
        })),
        _ => Err(Error::Corrupt(format!(
            "intent at {seq} has some of its lanes only"
        ))),
    }
}

/// How far a copy into a target has come; kept in the target, in the transaction that wrote the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyMark {
    /// Where the rows come from, for people.
    pub(crate) source: String,
    /// What the source held when the copy began.
    pub(crate) fingerprint: [u8; 32],
    pub(crate) began_at: i64,
    /// Tables that are copied already.
    pub(crate) tables: usize,
    /// Where the reading of the next one stands.
    pub(crate) cursor: Cursor,
}
