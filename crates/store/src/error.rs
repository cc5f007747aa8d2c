//! Errors of the storage itself. Refusals by the rules are not errors.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("too many requests wait for the database; try again shortly")]
    Busy,
    #[error("storage failed, nothing was written: {0}")]
    Unavailable(String),
    #[error("the disk is full, nothing was written: {0}")]
    DiskFull(String),
    #[error(
        "the sync of a commit failed, and the commit may or may not be on disk; restart the server to read what is there"
    )]
    Lost,
    /// Another process changed the files of a database under a running server; the text names the file and what to do.
    #[error("{0}")]
    Taken(String),
    #[error(
        "{} is in use by another server or command, by this or another name of the file; stop it first",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("stored data is damaged: {0}; run `consign store check`")]
    Corrupt(String),
    #[error(
        "{} belongs to the original Intent Bus; it was left untouched. Take it over with: consign import intent-bus {}",
        path.display(), path.display()
    )]
    IntentBusFile { path: PathBuf },
    #[error("{} is a SQLite database of some other program; it was left untouched", path.display())]
    ForeignFile { path: PathBuf },
    #[error("{} was written by a newer consign (schema {found}, this one knows {known}); upgrade the binary", path.display())]
    TooNew {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("cannot open {}: {reason}", path.display())]
    Open { path: PathBuf, reason: String },
    /// Never leaves the store: the transaction is retried.
    #[error("conflict with another transaction: {0}")]
    Conflict(String),
    /// Never leaves a writer: requests that do not need the lock are executed without it.
    #[error("another transaction holds a lock: {0}")]
    Locked(String),
    #[error(
        "the connection to the database was lost during a commit, which may or may not have happened: {0}"
    )]
    Unsure(String),
    #[error("this database address cannot be used: {0}")]
    DatabaseAddress(String),
    #[error(
        "database {database} was written by a newer consign (schema {found}, this one knows {known}); upgrade the binary"
    )]
    TooNewDatabase {
        database: String,
        found: i32,
        known: i32,
    },
    #[error(
        "{place} holds a part of a copy of {source_place}; copy again from there to resume the copy, and start when it is complete"
    )]
    PartCopy { place: String, source_place: String },
    /// A copy was refused or failed; the text says what to do.
    #[error("{0}")]
    Copy(String),
    #[error("{place} has a schema of an older version; migrate it with `consign store migrate`")]
    TooOld { place: String },
    #[error(
        "{place} was created by a development version of consign before the first release, and this version cannot upgrade it; \
         it was left unchanged. Open it with the version that created it, or start with a new database"
    )]
    DevelopmentSchema { place: String },
    #[error("the store has been closed")]
    Closed,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                Self::Corrupt(error.to_string())
            }
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::of_server(error.code(), crate::postgres::cause(&error))
    }
}

impl Error {
    /// Translates an error of PostgreSQL.
    pub(crate) fn of_server(
        code: Option<&tokio_postgres::error::SqlState>,
        reason: String,
    ) -> Self {
        use tokio_postgres::error::SqlState;
        match code {
            // Two transactions conflict: one of them is retried.
            Some(
                &SqlState::T_R_SERIALIZATION_FAILURE
                | &SqlState::T_R_DEADLOCK_DETECTED
                | &SqlState::UNIQUE_VIOLATION,
            ) => Self::Conflict(reason),
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Locked(reason),
            Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => Self::Corrupt(reason),
            Some(&SqlState::DISK_FULL) => Self::DiskFull(reason),
            _ => Self::Unavailable(reason),
        }
    }
}
