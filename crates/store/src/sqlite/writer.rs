//! The writer thread, and the thread that syncs its commits.
//!
//! Invariant: `BEGIN IMMEDIATE`, all queued requests, `COMMIT`, then a sync of the log; the replies follow
//! ([`crate::group`]). The sync is separate from SQLite's `COMMIT`, so that the next transaction can run meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use consign_kernel::command::{Reply, Request};
use consign_kernel::ids::Micros;
use rusqlite::Connection;

use super::checkpoint::{self, Checkpointer};
use super::file_identity::FileIdentity;
use super::nonces::Nonces;
use super::positions;
use super::rows::{signed, unsigned};
use super::schema;
use super::statements::StatementCache;
use super::tx::SqliteTx;
use super::wal::WalFile;
use crate::group::{
    self, Arrival, CommitShared, Executed, RequestGroup, Submitter, Transact, WriteQueue,
};
use crate::ledger::{Batch, Position, instants};
use crate::{Clock, Error};

pub(super) struct WriterThreads {
    submitter: Submitter,
    checkpointer: Mutex<Option<Checkpointer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) shared: Arc<CommitShared>,
}

impl WriterThreads {
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        clock: Arc<dyn Clock>,
        queue_max: usize,
    ) -> Result<Self, Error> {
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = group::write_queue(queue_max, &shared);
        let identity = FileIdentity::of(path)?;
        let position = positions::recover(&connection)?;
        let nonces = Nonces::load(&connection)?;
        shared
            .meters
            .last_fact
            .store(position.fact, Ordering::Relaxed);
        let log = Arc::new(WalFile::open(&connection)?);
        let checkpointer = Checkpointer::start(path, &shared, &log)?;
        let merge_wanted = Arc::clone(&checkpointer.merge_wanted);
        let (sync_queue, synced_log) = (queue.clone(), Arc::clone(&log));
        let syncer = spawn("ledger-sync", move || {
            sync_queue.poison_on_panic(|| sync_queue.run_sync_thread(&*synced_log));
        })?;
        let in_thread = Arc::clone(&shared);
        let writer = spawn("ledger-writer", move || {
            let sqlite_writer = SqliteWriter {
                prepared: StatementCache::new(&connection),
                nonces,
                identity,
                log: Arc::clone(&log),
                shared: Arc::clone(&in_thread),
                clock,
                position,
                next: None,
                executing: false,
            };
            queue.poison_on_panic(|| {
                sqlite_writer.run_loop(&queue, &log, &in_thread, &merge_wanted);
            });
            queue.stop_sync_thread();
            if in_thread.durability.is_lost() {
                checkpoint::rescue(&connection, &log, &in_thread);
                checkpoint::leave_log(&connection);
            } else {
                // All of it, so that the file alone is complete when it is opened or copied next.
                let merged = schema::note_open(&connection, false);
                let merged = merged.and_then(|()| checkpoint::merge_all(&connection));
                checkpoint::noted(merged, &in_thread);
            }
        })?;
        Ok(Self {
            submitter,
            checkpointer: Mutex::new(Some(checkpointer)),
            threads: Mutex::new(vec![writer, syncer]),
            shared,
        })
    }

    pub(super) async fn execute(&self, request: Request) -> Result<Reply, Error> {
        self.submitter.execute(request).await
    }

    /// Lets the threads execute the queued requests, then ends them.
    pub(super) fn close(&self) {
        self.submitter.close();
        // The last merge needs exclusive access to the log.
        drop(
            self.checkpointer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the ledger panicked");
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Error::Unavailable(error.to_string()))
}

impl Drop for WriterThreads {
    fn drop(&mut self) {
        self.close();
    }
}

/// The state of the writer thread: statements and positions.
struct SqliteWriter<'c> {
    prepared: StatementCache<'c>,
    nonces: Nonces,
    identity: FileIdentity,
    log: Arc<WalFile>,
    shared: Arc<CommitShared>,
    clock: Arc<dyn Clock>,
    /// As of the last commit.
    position: Position,
    /// As of the open transaction.
    next: Option<Position>,
    /// A transaction is open, and not all of its requests are executed yet.
    executing: bool,
}

pub(super) fn read_position(connection: &Connection) -> Result<Position, Error> {
    let sql = "SELECT last_time, last_seq, last_fact FROM position WHERE id = 1";
    Ok(connection.query_row(sql, [], |row| {
        Ok(Position {
            time: Micros(row.get(0)?),
            seq: unsigned(row, 1)?,
            fact: unsigned(row, 2)?,
        })
    })?)
}

impl SqliteWriter<'_> {
    fn confirm_log(&self) -> Result<(), Error> {
        let confirmed = self.log.confirm_length(self.prepared.connection());
        if let Err(error @ Error::Taken(_)) = &confirmed {
            tracing::error!(%error, "no request is accepted until a restart");
            self.shared.durability.mark_lost_by(error);
            return Err(Error::Lost);
        }
        confirmed
    }

    /// Opens a transaction and executes the group in it.
    fn run_group(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error> {
        self.executing = false;
        self.identity.confirm()?;
        self.confirm_log()?;
        self.nonces.refresh(self.prepared.connection())?;
        self.prepared.get("BEGIN IMMEDIATE")?.execute([])?;
        self.executing = true;
        let mut position = self.position;
        let mut tx = SqliteTx::new(&mut self.prepared, &mut self.nonces);
        let mut batch = Batch::new(&mut tx, instants(&*self.clock), &mut position);
        group.run_each(|request, arrival| {
            if arrival == Arrival::Later {
                batch.now_is(&*self.clock);
            }
            batch.run(request)
        })?;
        let wrote = batch.wrote;
        let news = batch.finish()?;
        tx.finish()?;
        if wrote {
            let sql =
                "UPDATE position SET last_time = ?1, last_seq = ?2, last_fact = ?3 WHERE id = 1";
            let at = (position.time.0, signed(position.seq), signed(position.fact));
            self.prepared.get(sql)?.execute(at)?;
        }
        self.next = Some(position);
        self.executing = false;
        Ok(Executed {
            news,
            wrote,
            last_fact: position.fact,
        })
    }

    fn run_loop(
        mut self,
        queue: &WriteQueue,
        log: &WalFile,
        shared: &Arc<CommitShared>,
        merge_wanted: &AtomicBool,
    ) {
        while let Some(group) = queue.gather() {
            if let Some(committed) = group::commit(&mut self, group, shared) {
                queue.sync_and_answer(committed, log);
            }
            if merge_wanted.swap(false, Ordering::Relaxed) && !shared.durability.is_lost() {
                checkpoint::noted(checkpoint::merge(self.prepared.connection()), shared);
            }
        }
    }
}

impl Transact for SqliteWriter<'_> {
    fn run(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error> {
        let ran = self.run_group(group);
        ran.map_err(|error| self.identity.named(error))
    }

    fn commit(&mut self) -> Result<(), Error> {
        if let Err(error) = self.prepared.get("COMMIT")?.execute([]) {
            // The first commit of a log that restarts syncs its header before it writes; nothing of it is in the log.
            if checkpoint::is_failed_sync(&error) {
                tracing::error!(%error, "the sync of a new log failed; no request is accepted until a restart");
                self.shared.durability.mark_sync_failed();
            }
            return Err(self.identity.named(error.into()));
        }
        self.position = self.next.take().unwrap_or(self.position);
        self.nonces.committed();
        Ok(())
    }

    fn roll_back(&mut self) {
        self.next = None;
        self.nonces.rolled_back();
        let undone = self
            .prepared
            .get("ROLLBACK")
            .and_then(|statement| statement.execute([]));
        // SQLite may have rolled back by itself; then the statement fails, which is harmless.
        if let Err(rollback) = undone {
            tracing::debug!(%rollback, "nothing to roll back");
        }
    }

    fn may_blame_request(&self, _: &Error) -> bool {
        // Before that the file or its lock fails; afterwards, the disk.
        self.executing
    }
}
