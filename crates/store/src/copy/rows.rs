//! The rows of a copy as kernel types, in the order of their keys, and the position of the reading.
//!
//! Invariant: nothing here depends on one database. Only the two ends know how a row is stored.

use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;
use consign_kernel::once;
use consign_kernel::record::Record;

use crate::Error;
use crate::ledger::Counter;

/// The tables of a ledger, in the order of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerTable {
    Intents,
    Facts,
    /// Once-keys with an answer.
    Once,
    /// Once-keys of which only the use is stored. SQLite keeps them in a separate table.
    Nonces,
    Records,
    Counts,
    /// Once-keys of mesh messages, in a table of the mesh protocol.
    Dedupe,
}

impl LedgerTable {
    pub const ALL: &[Self] = &[
        Self::Intents,
        Self::Facts,
        Self::Once,
        Self::Nonces,
        Self::Records,
        Self::Counts,
        Self::Dedupe,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Intents => "intents",
            Self::Facts => "facts",
            Self::Once => "once",
            Self::Nonces => "nonces",
            Self::Records => "records",
            Self::Counts => "counts",
            Self::Dedupe => "client_message_dedupe",
        }
    }
}

/// Rows of one table.
#[derive(Debug)]
pub(crate) enum TableRows {
    Intents(Vec<(Intent, Option<Lanes>)>),
    Facts(Vec<Fact>),
    /// With or without an answer: of [`LedgerTable::Once`], of [`LedgerTable::Nonces`] and of [`LedgerTable::Dedupe`].
    Once(Vec<once::FirstUse>),
    Records(Vec<Record>),
    Counts(Vec<(Counter, i64)>),
}

impl TableRows {
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

/// Some rows, and the cursor after them.
#[derive(Debug)]
pub(crate) struct RowPage {
    pub(crate) rows: TableRows,
    /// `None` at the end. A page may be empty and still have a next one.
    pub(crate) next: Option<Cursor>,
}

/// The key of the last row that was read. Only the source interprets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) numbers: [i64; 3],
    pub(crate) texts: [String; 2],
}

impl Cursor {
    /// Before the first row, even one with a damaged number.
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

/// The stored lanes of a row: all or none.
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

/// The progress of a copy; stored in the target, in the transaction that wrote the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyMark {
    /// The source, for messages.
    pub(crate) source: String,
    /// The fingerprint of the source when the copy began.
    pub(crate) fingerprint: [u8; 32],
    pub(crate) began_at: i64,
    /// The number of complete tables.
    pub(crate) tables: usize,
    /// The position in the next table.
    pub(crate) cursor: Cursor,
}
