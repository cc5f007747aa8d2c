//! The writer threads: each takes a group of requests, executes it in one transaction, and answers after its commit.
//!
//! Invariant: PostgreSQL confirms a commit when it is on disk (and on a synchronous standby), so the replies may be sent
//! then. A transaction that conflicts with another node's is retried from the start.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use consign_kernel::command::{Reply, Request};
use consign_kernel::ids::Micros;

use super::address::DatabaseAddress;
use super::flush::EncodedWrites;
use super::load::{LockTimeout, Prefetch};
use super::locks::{self, KnownLocks};
use super::session::Session;
use super::tx::PostgresTx;
use crate::group::{
    self, CommitShared, Executed, GroupTurn, RequestGroup, Submitter, SyncTarget, Transact,
    WriteQueue,
};
use crate::ledger::{Batch, Position};
use crate::{Clock, Error};

/// How often a transaction is attempted before its requests are refused.
const ATTEMPTS_MAX: u32 = 10;

/// How long a transaction is retried.
const ATTEMPTS_TIME: Duration = Duration::from_secs(8);

/// A group that took longer to fail is not retried in parts, which would take even longer.
const BLAME_TIME: Duration = Duration::from_secs(2);

/// Counters are split into this many parts.
const SHARDS: i64 = 64;

pub(super) struct Writers {
    submitter: Submitter,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) shared: Arc<CommitShared>,
}

/// State that the writers of a node share.
pub(super) struct WriterNode {
    pub(super) id: i64,
    pub(super) clock: Arc<dyn Clock>,
    /// The last time that any writer used: time never goes back, whatever the clock says.
    pub(super) last_time: AtomicI64,
    pub(super) locks: KnownLocks,
}

impl WriterNode {
    fn now(&self) -> Micros {
        let now = self.clock.now().0;
        let last = self.last_time.fetch_max(now, Ordering::Relaxed);
        Micros(now.max(last))
    }
}

impl Writers {
    pub(super) fn start(
        address: &DatabaseAddress,
        node: &Arc<WriterNode>,
        count: usize,
        queue_max: usize,
    ) -> Result<Self, Error> {
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = group::write_queue(queue_max, &shared);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (session, shard) = (Session::new(address.clone()), shard(node.id, index));
            let (queue, shared, node) = (queue.clone(), Arc::clone(&shared), Arc::clone(node));
            let work = move || {
                let writer = PostgresWriter {
                    session,
                    shard,
                    node,
                    turn: None,
                    last: None,
                    attempts: Attempts::new(),
                };
                queue.poison_on_panic(|| writer.run_loop(&queue, &shared));
            };
            let thread = std::thread::Builder::new()
                .name(format!("ledger-writer-{index}"))
                .spawn(work)
                .map_err(|error| Error::Unavailable(error.to_string()))?;
            threads.push(thread);
        }
        Ok(Self {
            submitter,
            threads: Mutex::new(threads),
            shared,
        })
    }

    pub(super) async fn execute(&self, request: Request) -> Result<Reply, Error> {
        self.submitter.execute(request).await
    }

    /// Lets the threads execute the queued requests, then ends them.
    pub(super) fn close(&self) {
        self.submitter.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the ledger panicked");
            }
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.close();
    }
}

fn shard(node: i64, writer: usize) -> i16 {
    let writer = i64::try_from(writer).unwrap_or(0);
    i16::try_from((node.wrapping_mul(7) + writer).rem_euclid(SHARDS)).unwrap_or(0)
}

/// Nothing to sync: PostgreSQL confirms only durable commits.
struct DurableCommit;

impl SyncTarget for DurableCommit {
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

struct PostgresWriter<'l> {
    session: Session,
    shard: i16,
    node: Arc<WriterNode>,
    turn: Option<GroupTurn<'l>>,
    /// The remaining writes of the open transaction, which are sent together with the commit.
    last: Option<EncodedWrites>,
    attempts: Attempts,
}

/// The attempts of the current group.
struct Attempts {
    count: u32,
    began: Instant,
    reconnected: bool,
}

impl Attempts {
    fn new() -> Self {
        Self {
            count: 1,
            began: Instant::now(),
            reconnected: false,
        }
    }
}

impl<'l> PostgresWriter<'l> {
    fn run_loop(mut self, queue: &'l WriteQueue, shared: &Arc<CommitShared>) {
        while let Some((group, turn)) = queue.gather_in_turn() {
            self.turn = Some(turn);
            self.attempts = Attempts::new();
            if let Some(group) = self.without_locked(group)
                && let Some(committed) = group::commit(&mut self, group, shared)
            {
                let safe = committed.sync(&DurableCommit, shared);
                committed.answer(safe, shared);
            }
            self.turn = None;
        }
    }

    /// Removes requests that need a row found locked recently, so that the others do not wait for it again.
    fn without_locked<'g>(&self, group: RequestGroup<'g>) -> Option<RequestGroup<'g>> {
        let locks = &self.node.locks;
        if locks.is_empty() {
            return Some(group);
        }
        let now = self.node.now();
        group.without_locked(|request| locks.block(request, now))
    }
}

impl Transact for PostgresWriter<'_> {
    fn run(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error> {
        self.session.ready()?;
        let now = self.node.now();
        let prefetch = Prefetch::of(group.requests(), now);
        let mut position = Position {
            time: now,
            ..Position::default()
        };
        let lock_timeout = if group.is_part() {
            LockTimeout::Brief
        } else {
            LockTimeout::Usual
        };
        let mut tx = PostgresTx::begin(
            &mut self.session,
            self.node.id,
            self.shard,
            &prefetch,
            lock_timeout,
            &mut position,
        )?;
        let instants = (now, self.node.clock.time_of_day());
        let mut batch = Batch::new(&mut tx, instants, &mut position);
        let replies = group
            .requests()
            .map(|request| batch.run(request))
            .collect::<Result<_, _>>()?;
        let wrote = batch.wrote;
        let news = batch.finish()?;
        let last_fact = tx.last_fact().0;
        self.last = Some(tx.into_writes()?);
        group.answer_with(replies);
        Ok(Executed {
            news,
            wrote,
            last_fact,
        })
    }

    fn commit(&mut self) -> Result<(), Error> {
        let last = self.last.take().unwrap_or_default();
        let committed = last.commit(&mut self.session);
        if matches!(committed, Err(Error::Unsure(_))) {
            self.session.abandon();
        }
        committed
    }

    fn roll_back(&mut self) {
        // If this fails, the server rolls back when the connection ends.
        if !self.session.is_usable() || self.session.run("ROLLBACK").is_err() {
            self.session.discard();
        }
    }

    fn should_retry(&mut self, error: &Error) -> bool {
        // The commit may have happened.
        if matches!(error, Error::Unsure(_)) {
            return false;
        }
        let attempts = &mut self.attempts;
        let conflict = matches!(error, Error::Conflict(_));
        if conflict && attempts.count < ATTEMPTS_MAX && attempts.began.elapsed() < ATTEMPTS_TIME {
            tracing::debug!(%error, count = attempts.count, "conflict with another node; retrying the transaction");
            attempts.count += 1;
            self.roll_back();
            return true;
        }
        // Before the commit the transaction has no effect, so after a lost connection it is retried.
        if !self.session.is_usable() && !attempts.reconnected {
            tracing::debug!(%error, "a connection was lost; retrying the transaction");
            attempts.reconnected = true;
            self.session.discard();
            return true;
        }
        false
    }

    fn may_blame_request(&self, _: &Error) -> bool {
        self.session.is_usable() && self.attempts.began.elapsed() < BLAME_TIME
    }

    fn find_lock_waiters(&mut self, group: &RequestGroup<'_>) -> Vec<bool> {
        let now = self.node.now();
        match locks::find(&mut self.session, group.requests(), now) {
            Ok(found) => {
                self.node.locks.note(found);
                let requests = group.requests();
                requests
                    .map(|request| self.node.locks.block(request, now))
                    .collect()
            }
            // A whole table may be locked; then all requests wait.
            Err(error) => {
                tracing::debug!(%error, "the locked rows could not be determined");
                self.roll_back();
                vec![true; group.len()]
            }
        }
    }
}
