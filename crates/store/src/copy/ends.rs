//! What a database must provide to be the source or target of a copy.
//!
//! The calls block; a copy runs in its own thread.

use std::fmt;
use std::path::PathBuf;

use super::rows::{CopyMark, Cursor, LedgerTable, RowPage, TableRows};
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
    /// Locks a file against writers while it is read. A PostgreSQL database lists its connections instead.
    pub(super) fn hold(&self) -> Result<Option<sqlite::FileLock>, Error> {
        match self {
            Self::File(path) if path.exists() => sqlite::FileLock::take(path).map(Some),
            Self::File(_) | Self::Database(_) => Ok(None),
        }
    }

    /// Opens it for reading.
    pub(super) fn source(&self) -> Result<Box<dyn CopySource>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::SqliteSource::open(path)?),
            Self::Database(address) => Box::new(postgres::copy::PostgresEnd::source(address)?),
        })
    }

    /// Opens what exists already; `None` if there is nothing.
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

    /// Why no ledger could be created there, if there is none.
    pub(super) fn obstacle(&self) -> Result<Option<String>, Error> {
        match self {
            Self::File(_) => Ok(None),
            Self::Database(address) => postgres::copy::PostgresEnd::obstacle(address),
        }
    }

    /// Opens it for writing; created and migrated if necessary.
    pub(super) fn target(&self, now_us: i64) -> Result<Box<dyn CopyTarget>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::SqliteTarget::open(path, now_us)?),
            Self::Database(address) => {
                Box::new(postgres::copy::PostgresEnd::target(address, now_us)?)
            }
        })
    }
}

/// The source of a copy.
pub(crate) trait CopySource {
    /// Equal for two ends exactly if they are the same database.
    fn identity(&mut self) -> Result<String, Error>;
    /// The number of connected servers and copies. A file is locked by the caller of the copy.
    fn others(&mut self) -> Result<u64, Error>;
    /// From now on everything is read as of one instant. A locked file does not change.
    fn hold(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// When the ledger was created, and its kind of database: a part of its fingerprint.
    fn origin(&mut self) -> Result<String, Error>;
    /// Time and positions of the sequences: no higher number was assigned.
    fn position(&mut self) -> Result<Position, Error>;
    /// The highest numbers of intents and facts; zero if there are none.
    fn highest(&mut self) -> Result<[u64; 2], Error>;
    /// The number of rows as the database counts them, independent of the reading by pages.
    fn count(&mut self, table: LedgerTable) -> Result<u64, Error>;
    /// The next rows in the order of their keys, at most `limit`.
    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error>;
}

/// A source that may hold an incomplete copy.
pub(crate) trait MarkedSource: CopySource {
    fn mark(&mut self) -> Result<Option<CopyMark>, Error>;
}

/// The target of a copy. While it has a mark, no server starts on it.
pub(crate) trait CopyTarget: MarkedSource {
    /// Empties the target and sets the mark, in one transaction.
    fn begin(&mut self, mark: &CopyMark) -> Result<(), Error>;
    /// Adds rows and moves the mark, in one transaction.
    fn write(&mut self, rows: TableRows, mark: &CopyMark) -> Result<(), Error>;
    /// Sets the sequences so that later numbers are above these, and removes the mark in the last transaction.
    fn finish(&mut self, position: Position) -> Result<(), Error>;
}
