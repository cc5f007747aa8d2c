//! What a database must offer to be read from or written to by a copy.
//!
//! The calls block; a copy has a thread to itself.

use std::fmt;
use std::path::PathBuf;

use super::rows::{Cursor, Mark, Page, Rows, Table};
use crate::Error;
use crate::ledger::Position;
use crate::postgres::{self, Address};
use crate::sqlite;

/// One end of a copy.
#[derive(Clone, Debug)]
pub enum End {
    File(PathBuf),
    Database(Box<Address>),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "sqlite:{}", path.display()),
            Self::Database(address) => address.fmt(f),
        }
    }
}

impl End {
    /// Keeps writers from a file for as long as it is read. A database tells who is connected.
    pub(super) fn hold(&self) -> Result<Option<sqlite::Hold>, Error> {
        match self {
            Self::File(path) if path.exists() => sqlite::Hold::take(path).map(Some),
            Self::File(_) | Self::Database(_) => Ok(None),
        }
    }

    /// To read from.
    pub(super) fn source(&self) -> Result<Box<dyn Source>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::Reader::open(path)?),
            Self::Database(address) => Box::new(postgres::copy::End::source(address)?),
        })
    }

    /// To look at what is there already; `None` if there is nothing.
    pub(super) fn existing(&self) -> Result<Option<Box<dyn Marked>>, Error> {
        Ok(match self {
            Self::File(path) => match sqlite::copy::Reader::existing(path)? {
                Some(reader) => Some(Box::new(reader)),
                None => None,
            },
            Self::Database(address) => match postgres::copy::End::existing(address)? {
                Some(end) => Some(Box::new(end)),
                None => None,
            },
        })
    }

    /// Why nothing could be made there, where nothing is.
    pub(super) fn obstacle(&self) -> Result<Option<String>, Error> {
        match self {
            Self::File(_) => Ok(None),
            Self::Database(address) => postgres::copy::End::obstacle(address),
        }
    }

    /// To write to; made, and brought up to date, if need be.
    pub(super) fn target(&self, now_us: i64) -> Result<Box<dyn Target>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::copy::Writer::open(path, now_us)?),
            Self::Database(address) => Box::new(postgres::copy::End::target(address, now_us)?),
        })
    }
}

/// What a copy reads.
pub(crate) trait Source {
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
    fn count(&mut self, table: Table) -> Result<u64, Error>;
    /// The next rows in the order of their keys, at most so many.
    fn page(&mut self, table: Table, after: &Cursor, limit: u32) -> Result<Page, Error>;
}

/// A source that may be a part of a copy.
pub(crate) trait Marked: Source {
    fn mark(&mut self) -> Result<Option<Mark>, Error>;
}

/// What a copy writes. As long as it has a mark, no server starts on it.
pub(crate) trait Target: Marked {
    /// Empties it and marks it, in one transaction.
    fn begin(&mut self, mark: &Mark) -> Result<(), Error>;
    /// Adds rows and moves the mark, in one transaction.
    fn write(&mut self, rows: Rows, mark: &Mark) -> Result<(), Error>;
    /// Sees to it that numbers given out from now on are above these, and removes the mark in the last transaction.
    fn finish(&mut self, position: Position) -> Result<(), Error>;
}
