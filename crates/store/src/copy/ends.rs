//! What a database must offer to be read from or written to by a copy.
//!
//! The calls block; a copy has a thread to itself.

use std::fmt;
use std::path::PathBuf;

use super::rows::{CopyMark, Cursor, LedgerTable, RowPage, Rows};
use crate::Error;
use crate::ledger::Position;
use crate::postgres::{self, DatabaseAddress};
use crate::sqlite;

/// One end of a copy.
#[derive(Clone, Debug)]
pub enum CopyEnd {
    File(PathBuf),
    Database(Box<DatabaseAddress>),
}

impl fmt::Display for CopyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "sqlite:{}", path.display()),
            Self::Database(address) => address.fmt(f),
        }
    }
}

impl CopyEnd {
    /// Keeps writers from a file for as long as it is read. A database tells who is connected.
    pub(super) fn hold(&self) -> Result<Option<sqlite::FileLock>, Error> {
        match self {
            Self::File(path) if path.exists() => sqlite::FileLock::take(path).map(Some),
            Self::File(_) | Self::Database(_) => Ok(None),
        }
    }

    /// To read from.
    pub(super) fn source(&self) -> Result<Box<dyn CopySource>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::SqliteSource::open(path)?),
            Self::Database(address) => Box::new(postgres::copy::PostgresEnd::source(address)?),
        })
    }

    /// To look at what is there already; `None` if there is nothing.
    pub(super) fn existing(&self) -> Result<Option<Box<dyn MarkedSource>>, Error> {
        Ok(match self {
            Self::File(path) => match sqlite::copy::SqliteSource::existing(path)? {
                Some(reader) => Some(Box::new(reader)),
                None => None,
            },
            Self::Database(address) => match postgres::copy::PostgresEnd::existing(address)? {
                Some(end) => Some(Box::new(end)),
                None => None,
            },
        })
    }

    /// Why nothing could be made there, where nothing is.
    pub(super) fn obstacle(&self) -> Result<Option<String>, Error> {
        match self {
            Self::File(_) => Ok(None),
            Self::Database(address) => postgres::copy::PostgresEnd::obstacle(address),
        }
    }

    /// To write to; made, and brought up to date, if need be.
    pub(super) fn target(&self, now_us: i64) -> Result<Box<dyn CopyTarget>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::SqliteTarget::open(path, now_us)?),
            Self::Database(address) => {
                Box::new(postgres::copy::PostgresEnd::target(address, now_us)?)
            }
        })
    }
}

/// What a copy reads.
pub(crate) trait CopySource {
    /// The same for two ends that are the same database, and for no others.
    fn identity(&mut self) -> Result<String, Error>;
    /// Servers and copies that are connected to it. A file is locked by whoever asks for the copy.
    fn others(&mut self) -> Result<u64, Error>;
    /// From now on everything is read as of one instant. A file that nobody else writes to is as it is.
    fn hold(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// When the ledger was made, and what it is kept in: one part of its fingerprint.
    fn origin(&mut self) -> Result<String, Error>;
    /// Where time and the sequences stand: no number above has been given out.
    fn position(&mut self) -> Result<Position, Error>;
    /// The highest numbers that an intent and a fact have, zero for none.
    fn highest(&mut self) -> Result<[u64; 2], Error>;
    /// As the database counts them, whatever the reading by pages makes of them.
    fn count(&mut self, table: LedgerTable) -> Result<u64, Error>;
    /// The next rows in the order of their keys, at most so many.
    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error>;
}

/// A source that may be a part of a copy.
pub(crate) trait MarkedSource: CopySource {
    fn mark(&mut self) -> Result<Option<CopyMark>, Error>;
}

/// What a copy writes. As long as it has a mark, no server starts on it.
pub(crate) trait CopyTarget: MarkedSource {
    /// Empties it and marks it, in one transaction.
    fn begin(&mut self, mark: &CopyMark) -> Result<(), Error>;
    /// Adds rows and moves the mark, in one transaction.
    fn write(&mut self, rows: Rows, mark: &CopyMark) -> Result<(), Error>;
    /// Sees to it that numbers given out from now on are above these, and removes the mark in the last transaction.
    fn finish(&mut self, position: Position) -> Result<(), Error>;
}
