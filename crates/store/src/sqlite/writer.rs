//! The one thread that writes.
//!
//! Invariant: `BEGIN IMMEDIATE`, everything that waits, `COMMIT`, which SQLite syncs; the answers follow ([`crate::group`]).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use consign_kernel::command::Request;
use consign_kernel::ids::Micros;
use rusqlite::Connection;

use super::checkpoint::Checkpointer;
use super::identity::Identity;
use super::prepared::Prepared;
use super::rows::signed;
use super::tx::Open;
use crate::group::{self, Intake, Job, Line, Meters, Transact};
use crate::ledger::Batch;
use crate::{Clock, Error, Executed};

pub(super) struct Writer {
    intake: Intake,
    checkpointer: Mutex<Option<Checkpointer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) meters: Arc<Meters>,
}

impl Writer {
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        clock: Arc<dyn Clock>,
        queue_max: usize,
    ) -> Result<Self, Error> {
        let meters = Arc::new(Meters::default());
        let (intake, line) = group::line(queue_max, &meters);
        let identity = Identity::of(path)?;
        let position = Position::read(&connection)?;
        meters.last_fact.store(position.fact, Ordering::Relaxed);
        let checkpointer = Checkpointer::start(path)?;
        let rest_wanted = Arc::clone(&checkpointer.rest_wanted);
        let in_thread = Arc::clone(&meters);
        let thread = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || {
                let ledger = Ledger {
                    prepared: Prepared::new(&connection),
                    identity,
                    clock,
                    meters: &in_thread,
                    position,
                    next: None,
                };
                ledger.work(&line, &rest_wanted);
                merge_log(&connection, "TRUNCATE");
            })
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            intake,
            checkpointer: Mutex::new(Some(checkpointer)),
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    pub(super) async fn execute(&self, request: Request) -> Result<Executed, Error> {
        self.intake.execute(request).await
    }

    /// Lets the thread finish what waits, then ends it.
    pub(super) fn close(&self) {
        self.intake.close();
        // The last merge needs the log for itself.
        drop(
            self.checkpointer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the ledger writer ended by a panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// At the end all of it, so that whoever opens or copies the file next finds everything there and nothing in the log.
fn merge_log(connection: &Connection, how: &str) {
    let merged = connection.execute_batch(&format!("PRAGMA wal_checkpoint({how})"));
    if let Err(error) = merged {
        tracing::warn!(%error, "the log was not merged into the file; a later start does it");
    }
}

/// The statements and where the sequences stand.
struct Ledger<'c> {
    prepared: Prepared<'c>,
    identity: Identity,
    clock: Arc<dyn Clock>,
    meters: &'c Meters,
    /// As of the last commit.
    position: Position,
    /// As of the open transaction, and whether it wrote anything.
    next: Option<(Position, bool)>,
}

#[derive(Clone, Copy)]
struct Position {
    time: Micros,
    seq: u64,
    fact: u64,
}

impl Position {
    fn read(connection: &Connection) -> Result<Self, Error> {
        let sql = "SELECT last_time, last_seq, last_fact FROM position WHERE id = 1";
        Ok(connection.query_row(sql, [], |row| {
            Ok(Self {
                time: Micros(row.get(0)?),
                seq: super::rows::unsigned(row, 1)?,
                fact: super::rows::unsigned(row, 2)?,
            })
        })?)
    }
}

impl Ledger<'_> {
    fn work(mut self, line: &Line, rest_wanted: &AtomicBool) {
        let meters = self.meters;
        let mut group = Vec::with_capacity(64);
        while line.gather(&mut group) {
            group::serve(&mut self, &mut group, meters);
            if rest_wanted.swap(false, Ordering::Relaxed) {
                merge_log(self.prepared.connection(), "PASSIVE");
            }
        }
    }
}

impl Transact for Ledger<'_> {
    fn run(&mut self, group: &[Job]) -> Result<Vec<Executed>, Error> {
        self.identity.confirm()?;
        self.prepared.get("BEGIN IMMEDIATE")?.execute([])?;
        let mut position = self.position;
        position.time = self.clock.now().max(position.time);
        let mut tx = Open {
            prepared: &mut self.prepared,
            last_fact: &mut position.fact,
        };
        let mut batch = Batch::new(&mut tx, position.time, &mut position.seq);
        let mut executed = Vec::with_capacity(group.len());
        for job in group {
            executed.push(batch.run(&job.request)?);
        }
        let wrote = batch.wrote;
        batch.finish()?;
        if wrote {
            let sql =
                "UPDATE position SET last_time = ?1, last_seq = ?2, last_fact = ?3 WHERE id = 1";
            let at = (position.time.0, signed(position.seq), signed(position.fact));
            self.prepared.get(sql)?.execute(at)?;
        }
        self.next = Some((position, wrote));
        Ok(executed)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.prepared.get("COMMIT")?.execute([])?;
        if let Some((position, wrote)) = self.next.take() {
            self.position = position;
            self.meters
                .last_fact
                .store(position.fact, Ordering::Release);
            self.meters
                .commits
                .fetch_add(u64::from(wrote), Ordering::Relaxed);
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        self.next = None;
        let undone = self
            .prepared
            .get("ROLLBACK")
            .and_then(|statement| statement.execute([]));
        // SQLite may have rolled back by itself; then this is refused, which is fine.
        if let Err(rollback) = undone {
            tracing::debug!(%rollback, "nothing left to roll back");
        }
    }
}
