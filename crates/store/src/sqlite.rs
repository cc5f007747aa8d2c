//! The default backend: one SQLite file, one writer thread with group commit, a few read-only connections.
//!
//! Invariant: the log is synced before its content is answered or shown; every acknowledged commit survives a power
//! failure.

mod backup;
mod check;
mod checkpoint;
pub(crate) mod copy;
mod file_identity;
mod file_lock;
mod import;
mod nonces;
mod positions;
mod reads;
mod rows;
mod schema;
mod statements;
mod tx;
mod wal;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

pub use backup::backup;
pub(crate) use file_lock::FileLock;
pub use file_lock::is_locked;
pub use import::{ForeignIntent, ForeignKey, ForeignKv, ForeignRows, IntentBusFile, UnreadableRow};
pub use positions::{Repair, repair};
pub use schema::{FileKind, identify, migrate, pending};

use crate::{
    BoxFuture, Clock, CommitListener, Count, Dump, Error, EventFilter, EventPage, IntentFilter,
    IntentPage, JobCount, LeaseCount, Outline, OutlinePage, Stats, Store,
};
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
        let (connection, file_lock) = schema::writer(&options.path, options.clock.now().0)?;
        copy::refuse_part(&connection, &options.path)?;
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

    fn intent(&self, id: IntentId) -> BoxFuture<'_, Option<Intent>> {
        self.readers
            .run(move |connection| reads::intent(connection, id))
    }

    fn intents(&self, filter: IntentFilter) -> BoxFuture<'_, IntentPage> {
        self.readers
            .run(move |connection| reads::intents(connection, &filter))
    }

    fn outlines(&self, filter: IntentFilter) -> BoxFuture<'_, OutlinePage> {
        self.readers
            .run(move |connection| reads::outlines(connection, &filter))
    }

    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Outline>> {
        self.readers.run(move |connection| {
            reads::open_jobs(connection, &capability, goal.as_deref(), limit)
        })
    }

    fn jobs_by_state(&self, state: Option<State>, limit: u32) -> BoxFuture<'_, Vec<Outline>> {
        self.readers
            .run(move |connection| reads::jobs_by_state(connection, state, limit))
    }

    fn job_counts(&self, now: Micros) -> BoxFuture<'_, Vec<JobCount>> {
        self.readers
            .run(move |connection| reads::job_counts(connection, now))
    }

    fn children(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Intent>> {
        self.readers
            .run(move |connection| reads::children(connection, parent, limit))
    }

    fn child_jobs(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Outline>> {
        self.readers
            .run(move |connection| reads::child_jobs(connection, parent, limit))
    }

    fn find_job_by_payload(
        &self,
        text: String,
        after: IntentId,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Outline>> {
        self.readers
            .run(move |connection| reads::find_job_by_payload(connection, &text, after, scan_max))
    }

    fn active_rows(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Intent>> {
        self.readers
            .run(move |connection| reads::active_rows(connection, profile, state, after, limit))
    }

    fn dead(&self, face: Face, limit: u32) -> BoxFuture<'_, Vec<Intent>> {
        self.readers
            .run(move |connection| reads::dead(connection, face, limit))
    }

    fn facts(&self, intent: Seq, limit: u32) -> BoxFuture<'_, Vec<Fact>> {
        self.readers
            .run(move |connection| reads::facts(connection, intent, limit))
    }

    fn last_fact_to(
        &self,
        intent: Seq,
        states: &'static [State],
        before: Option<FactSeq>,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Fact>> {
        self.readers.run(move |connection| {
            reads::last_fact_to(connection, intent, states, before, scan_max)
        })
    }

    fn events(&self, filter: EventFilter) -> BoxFuture<'_, EventPage> {
        self.readers
            .run(move |connection| reads::events(connection, &filter))
    }

    /// Read from the file and not from the counter: a fact may be visible before the counter is updated.
    fn highest_fact(&self) -> BoxFuture<'_, FactSeq> {
        self.readers.run(reads::highest_fact)
    }

    fn record(&self, key: record::Key) -> BoxFuture<'_, Option<Record>> {
        let now = self.clock.now();
        self.readers
            .run(move |connection| reads::record(connection, &key, now))
    }

    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>> {
        let now = self.clock.now();
        self.readers
            .run(move |connection| reads::records(connection, kind, &owner, &after, now, limit))
    }

    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>> {
        let now = self.clock.now();
        self.readers.run(move |connection| {
            reads::last_records(connection, kind, &owner, &before, now, limit)
        })
    }

    fn counts(&self, face: Face) -> BoxFuture<'_, Vec<Count>> {
        self.readers
            .run(move |connection| reads::counts(connection, face))
    }

    fn lease_counts(&self) -> BoxFuture<'_, Vec<LeaseCount>> {
        self.readers.run(reads::lease_counts)
    }

    fn next_due(&self) -> BoxFuture<'_, Option<Micros>> {
        self.readers.run(reads::next_due)
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
            last_fact: FactSeq(meters.last_fact.load(Ordering::Acquire)),
        }
    }
}
