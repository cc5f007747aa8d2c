//! The one thread that writes: it takes everything that waits and commits it together.
//!
//! Invariant: an answer leaves only after the commit that covers it, and that commit is synced.
//! Group commit needs no timer: while one commit syncs, the next batch gathers by itself.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use consign_kernel::command::Request;
use consign_kernel::ids::Micros;
use consign_kernel::plant::{self, Plant};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::identity::Identity;
use super::rows::signed;
use super::tx::Open;
use crate::failpoint::{self, Failpoint};
use crate::ledger::Batch;
use crate::{Clock, Error, Executed};

/// Requests in one commit: more would only delay the first answer.
const BATCH_REQUESTS_MAX: usize = 1_024;

pub(super) struct Writer {
    queue: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) meters: Arc<Meters>,
}

#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) commits: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) last_fact: AtomicU64,
}

struct Job {
    request: Request,
    answer: oneshot::Sender<Result<Executed, Error>>,
}

impl Writer {
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        clock: Arc<dyn Clock>,
        queue_max: usize,
    ) -> Result<Self, Error> {
        let (queue, jobs) = sync_channel(queue_max);
        let meters = Arc::new(Meters::default());
        let mut ledger = Ledger::open(path, connection, clock, Arc::clone(&meters))?;
        let thread = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || ledger.work(&jobs))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    pub(super) async fn execute(&self, request: Request) -> Result<Executed, Error> {
        let (answer, answered) = oneshot::channel();
        {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = queue.as_ref().ok_or(Error::Closed)?;
            self.meters.waiting.fetch_add(1, Ordering::Relaxed);
            queue.try_send(Job { request, answer }).map_err(|refused| {
                self.meters.waiting.fetch_sub(1, Ordering::Relaxed);
                match refused {
                    TrySendError::Full(_) => Error::Busy,
                    TrySendError::Disconnected(_) => Error::Closed,
                }
            })?;
        }
        answered.await.map_err(|_| Error::Closed)?
    }

    /// Lets the thread finish what waits, then ends it.
    pub(super) fn close(&self) {
        drop(
            self.queue
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

/// The connection and where its sequences stand.
struct Ledger {
    identity: Identity,
    connection: Connection,
    clock: Arc<dyn Clock>,
    meters: Arc<Meters>,
    position: Position,
}

/// As of the last commit.
#[derive(Clone, Copy)]
struct Position {
    time: Micros,
    seq: u64,
    fact: u64,
}

impl Ledger {
    fn open(
        path: &Path,
        connection: Connection,
        clock: Arc<dyn Clock>,
        meters: Arc<Meters>,
    ) -> Result<Self, Error> {
        let sql = "SELECT last_time, last_seq, last_fact FROM position WHERE id = 1";
        let position = connection.query_row(sql, [], |row| {
            Ok(Position {
                time: Micros(row.get(0)?),
                seq: super::rows::unsigned(row, 1)?,
                fact: super::rows::unsigned(row, 2)?,
            })
        })?;
        meters.last_fact.store(position.fact, Ordering::Relaxed);
        Ok(Self {
            identity: Identity::of(path)?,
            connection,
            clock,
            meters,
            position,
        })
    }

    fn work(&mut self, jobs: &Receiver<Job>) {
        let mut batch = Vec::with_capacity(64);
        while let Ok(first) = jobs.recv() {
            batch.push(first);
            while batch.len() < BATCH_REQUESTS_MAX
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
            self.meters
                .waiting
                .fetch_sub(batch.len() as u64, Ordering::Relaxed);
            self.serve(&mut batch);
        }
        // Whoever opens or copies the file next finds everything in it, not half of it in the log.
        if let Err(error) = self
            .connection
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        {
            tracing::warn!(%error, "the log was not merged into the file; the next start does it");
        }
    }

    fn serve(&mut self, batch: &mut Vec<Job>) {
        // A request whose caller went away before its turn would only do work nobody sees answered.
        batch.retain(|job| !job.answer.is_closed());
        if batch.is_empty() {
            return;
        }
        self.meters
            .requests
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        if plant::on(Plant::AnswerBeforeCommit) {
            return self.answer_before_commit(batch);
        }
        match self.commit(batch) {
            Ok(executed) => {
                failpoint::hit(Failpoint::AfterCommit);
                for (job, executed) in batch.drain(..).zip(executed) {
                    // Nobody listens when the caller went away; what was committed stays committed.
                    let _ = job.answer.send(Ok(executed));
                }
            }
            Err(error) => {
                self.meters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, requests = batch.len(), "commit failed, nothing was acknowledged");
                for job in batch.drain(..) {
                    let _ = job.answer.send(Err(Error::Unavailable(error.to_string())));
                }
            }
        }
    }

    fn commit(&mut self, batch: &[Job]) -> Result<Vec<Executed>, Error> {
        self.identity.confirm()?;
        failpoint::hit(Failpoint::BeforeWrite);
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let done = self.run_guarded(batch).and_then(|done| {
            failpoint::hit(Failpoint::AfterWrite);
            self.connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(done)
        });
        match done {
            Ok((executed, position, wrote)) => {
                self.position = position;
                self.meters
                    .last_fact
                    .store(position.fact, Ordering::Release);
                self.meters
                    .commits
                    .fetch_add(u64::from(wrote), Ordering::Relaxed);
                Ok(executed)
            }
            Err(error) => {
                // SQLite may have rolled back by itself; then this is refused, which is fine.
                if let Err(rollback) = self.connection.execute_batch("ROLLBACK") {
                    tracing::debug!(%rollback, "nothing left to roll back");
                }
                Err(error)
            }
        }
    }

    /// A mistake of ours in one request must not end the only thread that writes: its batch is rolled back and refused.
    fn run_guarded(&self, batch: &[Job]) -> Result<(Vec<Executed>, Position, bool), Error> {
        // Nothing of ours is changed before the commit, and the transaction is rolled back.
        let run = AssertUnwindSafe(|| self.run(batch));
        std::panic::catch_unwind(run).unwrap_or_else(|_| {
            Err(Error::Unavailable(
                "a rule failed its own checks; the log tells where".to_owned(),
            ))
        })
    }

    fn run(&self, batch: &[Job]) -> Result<(Vec<Executed>, Position, bool), Error> {
        let mut position = self.position;
        position.time = self.clock.now().max(position.time);
        let mut tx = Open {
            connection: &self.connection,
            last_fact: &mut position.fact,
        };
        let mut shared = Batch::new(&mut tx, position.time, &mut position.seq);
        let mut executed = Vec::with_capacity(batch.len());
        for job in batch {
            executed.push(shared.run(&job.request)?);
        }
        let wrote = shared.wrote;
        shared.finish()?;
        if wrote {
            let sql =
                "UPDATE position SET last_time = ?1, last_seq = ?2, last_fact = ?3 WHERE id = 1";
            let at = (position.time.0, signed(position.seq), signed(position.fact));
            self.connection.prepare_cached(sql)?.execute(at)?;
        }
        Ok((executed, position, wrote))
    }

    /// The planted defect: answers first, and commits after a while, so that a kill in between loses what was promised.
    fn answer_before_commit(&mut self, batch: &mut Vec<Job>) {
        let done = self
            .connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(Error::from)
            .and_then(|()| self.run(batch));
        let Ok((executed, position, _)) = done else {
            batch.clear();
            return;
        };
        for (job, executed) in batch.drain(..).zip(executed) {
            let _ = job.answer.send(Ok(executed));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        if self.connection.execute_batch("COMMIT").is_ok() {
            self.position = position;
        }
    }
}
