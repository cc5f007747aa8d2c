//! The default backend: one SQLite file, one writer thread with group commit, a few read-only connections.
//!
//! Invariant: the log is synced before its content is answered or shown; every acknowledged commit survives a power
//! failure.

mod backup;
mod check;
mod checkpoint;
pub(crate) mod copy;
mod dedupe;
mod file_identity;
mod file_lock;
mod file_status;
mod import;
mod nonces;
mod outbox;
mod outbox_reads;
mod positions;
mod reads;
mod rows;
mod schema;
mod search;
mod statements;
mod tx;
mod wal;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consign_kernel::command::{Reply, Request};
use consign_kernel::ids::{FactSeq, Micros};
use rusqlite::Connection;

pub use backup::backup;
pub(crate) use file_lock::FileLock;
pub use file_lock::is_locked;
pub use import::{
    BeamFile, BeamFileNumbers, BeamFileRows, ForeignAclRule, ForeignAgent, ForeignAgentKey,
    ForeignBeamIntent, ForeignCursor, ForeignDelegation, ForeignIntent, ForeignKey, ForeignKv,
    ForeignMessage, ForeignPage, ForeignPeer, ForeignRows, ForeignTraceEvent, IntentBusFile,
    UnreadableRow,
};
pub use outbox::{OUTBOX_INTENT_KIND, OUTBOX_PUBLISH, OUTBOX_SEND};
pub use outbox_reads::{OutboxTableRow, OutboxTally};
pub use positions::{Repair, repair};
pub use schema::{FileKind, SCHEMA_VERSION, identify, migrate, pending};

use crate::{BoxFuture, Clock, CommitListener, Dump, Error, Query, Rows, Stats, Store};
use reads::SqliteReadPool;
use writer::WriterThreads;

/// How many requests may wait for the writer before new ones are refused as busy.
pub const QUEUE_REQUESTS_MAX: usize = 8_192;

/// Read-only connections; reads are short, and more connections would only compete for the cores.
const READERS: usize = 4;

#[derive(Clone)]
pub struct Options {
    pub path: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub queue_max: usize,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("path", &self.path)
            .field("queue_max", &self.queue_max)
            .finish_non_exhaustive()
    }
}

pub struct Sqlite {
    path: PathBuf,
    writer: WriterThreads,
    readers: Arc<SqliteReadPool>,
    clock: Arc<dyn Clock>,
    // Last, because its descriptor must stay open until SQLite has closed the file.
    file_lock: FileLock,
}

impl Sqlite {
    /// Opens or creates the file, which no other process may have open for writing, migrates its schema, starts the writer.
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::open_with(options, |_, _| Ok(()))
    }

    /// The same for the ledger of a mesh daemon, which also shows its outbox as the table of the mesh protocol. What other
    /// programs have edited in that table while the file was not open becomes a part of the ledger first.
    pub fn open_outbox(options: Options) -> Result<Self, Error> {
        Self::open_with(options, outbox::prepare)
    }

    fn open_with(
        options: Options,
        prepare: impl FnOnce(&Connection, &dyn Clock) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (connection, file_lock) = schema::writer(&options.path, options.clock.now().0)?;
        copy::refuse_part(&connection, &options.path)?;
        prepare(&connection, &*options.clock)?;
        let writer = WriterThreads::start(
            &options.path,
            connection,
            Arc::clone(&options.clock),
            options.queue_max,
        )?;
        let readers = Arc::new(SqliteReadPool::open(
            &options.path,
            READERS,
            &writer.shared,
        )?);
        Ok(Self {
            path: options.path,
            writer,
            readers,
            clock: options.clock,
            file_lock,
        })
    }

    /// Checks a file that no other process has open, as [`Store::check`] does. Repairs nothing, but migrates the schema.
    pub fn check_file(path: &Path, now: Micros) -> Result<Vec<String>, Error> {
        let (connection, _hold) = schema::writer(path, now.0)?;
        copy::refuse_part(&connection, path)?;
        let findings = check::check(&connection)?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(findings)
    }

    /// The engine time of the last commit: a restarted clock must not start before it.
    pub fn last_time(path: &Path) -> Result<Option<Micros>, Error> {
        if identify(path)? != FileKind::Consign {
            return Ok(None);
        }
        let connection = schema::reader(path)?;
        // A first start that was interrupted has marked the file and not created its tables.
        if !connection.table_exists(None, "position")? {
            return Ok(None);
        }
        let sql = "SELECT last_time FROM position WHERE id = 1";
        Ok(Some(
            connection
                .query_row(sql, [], |row| row.get(0))
                .map(Micros)?,
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns only if a sync failed. Then everything is refused until a restart.
    pub async fn until_lost(&self) {
        self.writer.shared.durability.until_lost().await;
    }

    pub fn is_lost(&self) -> bool {
        self.writer.shared.durability.is_lost()
    }

    /// Why the store accepts nothing any more, if another process changed the files.
    pub fn why_lost(&self) -> Option<&str> {
        self.writer.shared.durability.why_lost()
    }

    /// Executes the queued requests and ends the writer. Later requests are refused.
    pub fn close(&self) {
        self.writer.close();
        self.file_lock.release();
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Store for Sqlite {
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Box::pin(self.writer.execute(request))
    }

    fn listen(&self, listener: CommitListener) {
        self.writer.shared.listeners.add(listener);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        if matches!(query, Query::LastFact) {
            let last = self.stats().last_fact;
            return Box::pin(std::future::ready(Ok(Rows::FactSeq(last))));
        }
        let now = self.clock.now();
        self.readers
            .run(move |connection| reads::read(connection, &query, now))
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        self.readers.run(check::check)
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        self.readers.run(reads::dump)
    }

    fn stats(&self) -> Stats {
        let meters = &self.writer.shared.meters;
        Stats {
            commits: meters.commits.load(Ordering::Relaxed),
            requests: meters.requests.load(Ordering::Relaxed),
            failed_commits: meters.failed.load(Ordering::Relaxed),
            waiting: meters.waiting.load(Ordering::Relaxed),
            refused: meters.refused.load(Ordering::Relaxed),
            last_fact: FactSeq(meters.last_fact.load(Ordering::Acquire)),
        }
    }
}
