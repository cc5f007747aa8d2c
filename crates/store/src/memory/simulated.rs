//! A store whose disk fails and whose machine crashes on request of the simulation.
//!
//! The group commit is the real one (`crate::group`); the rows are the model's. Invariant: nothing runs in the background:
//! requests wait until [`SimulatedMachine::turn`], in the caller's own thread. After a crash the durable copy remains, which
//! is also what readers see; the next group runs on what was committed, durable or not.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::command::{Reply, Request};
use consign_kernel::ids::Micros;

use super::{Memory, ModelData};
use crate::group::{
    self, CommitShared, CommittedGroup, Executed, RequestGroup, Submitter, Transact, WriteQueue,
};
use crate::ledger::instants;
use crate::{BoxFuture, Clock, CommitListener, Error, Forwarding, SharedStore, Stats};

/// The fault of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    None,
    /// The disk refuses the write; nothing is durable.
    Refused,
    /// The sync takes until the next turn.
    Slow,
    /// The sync fails, although the commit is on the disk.
    Lost,
    /// The sync fails, and the commit is lost.
    Gone,
    /// The machine crashes before the commit is durable.
    CrashBefore,
    /// The machine crashes after the commit is durable, before any reply.
    CrashAfter,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// No request waited.
    Idle,
    Committed,
    /// Committed, and not answered yet.
    Slow,
    /// All requests were refused.
    Failed,
    /// The store accepts nothing any more, or the machine crashed: only [`SimulatedMachine::restart`] helps.
    Crashed,
}

/// The store as a running process sees it.
pub struct Simulated {
    submitter: Submitter,
    /// The content of the disk.
    durable: SharedStore,
    shared: Arc<CommitShared>,
}

/// The machine of the store: its writer and its disk.
pub struct SimulatedMachine {
    queue: WriteQueue,
    shared: Arc<CommitShared>,
    log: SimulatedLog,
    requests_max: usize,
}

/// The transactions of the writer.
struct SimulatedLog {
    /// The last commit, durable or not.
    committed: ModelData,
    /// The open transaction.
    next: Option<ModelData>,
    clock: Arc<dyn Clock>,
    disk: SimulatedDisk,
    shared: Arc<CommitShared>,
    /// A commit of an earlier turn that waits for its sync.
    slow: Option<CommittedGroup>,
    /// The machine crashed, or its disk failed, while a group ran.
    dead: bool,
}

/// The data that survives a crash.
struct SimulatedDisk {
    durable: Arc<Memory>,
    coming: Mutex<Option<ModelData>>,
    fault: DiskFault,
}

pub fn start(clock: Arc<dyn Clock>, requests_max: usize) -> (Arc<Simulated>, SimulatedMachine) {
    boot(ModelData::default(), clock, requests_max)
}

fn boot(
    data: ModelData,
    clock: Arc<dyn Clock>,
    requests_max: usize,
) -> (Arc<Simulated>, SimulatedMachine) {
    let shared = Arc::new(CommitShared::default());
    let (submitter, queue) = group::write_queue(requests_max, &shared);
    let durable = Arc::new(Memory::new(Arc::clone(&clock)));
    *durable.data() = data.clone();
    let store = Simulated {
        submitter,
        durable: durable.clone(),
        shared: Arc::clone(&shared),
    };
    let log = SimulatedLog {
        committed: data,
        next: None,
        clock,
        disk: SimulatedDisk {
            durable,
            coming: Mutex::new(None),
            fault: DiskFault::None,
        },
        shared: Arc::clone(&shared),
        slow: None,
        dead: false,
    };
    let machine = SimulatedMachine {
        queue,
        shared,
        log,
        requests_max,
    };
    (Arc::new(store), machine)
}

impl SimulatedMachine {
    /// Commits the queued requests as one group. The group runs before the sync of a slow commit, is committed after it, and
    /// is slow itself then: in one turn at most one commit becomes durable.
    pub fn turn(&mut self, fault: DiskFault) -> Turn {
        let log = &mut self.log;
        log.disk.fault = fault;
        let Some(group) = self.queue.gather_now() else {
            if log.slow.is_none() {
                return Turn::Idle;
            }
            return log.sync_slow();
        };
        let behind_another = log.slow.is_some();
        let committed = group::commit(log, group, &self.shared);
        if log.dead {
            return Turn::Crashed;
        }
        let Some(committed) = committed else {
            return Turn::Failed;
        };
        *log.disk.coming() = Some(log.committed.clone());
        if fault == DiskFault::CrashBefore {
            return Turn::Crashed;
        }
        if fault == DiskFault::Slow || behind_another {
            log.slow = Some(committed);
            return Turn::Slow;
        }
        log.sync_and_answer(committed)
    }

    /// The time of the last durable commit, from which a new process continues.
    pub fn last_time(&self) -> Micros {
        self.log.disk.durable.data().position.time
    }

    /// A new process, with its own clock, on the durable data. Requests to the old process are never answered.
    #[must_use]
    pub fn restart(self, clock: Arc<dyn Clock>) -> (Arc<Simulated>, Self) {
        let data = self.log.disk.durable.data().clone();
        boot(data, clock, self.requests_max)
    }
}

impl SimulatedLog {
    fn sync_slow(&mut self) -> Turn {
        match self.slow.take() {
            None => Turn::Committed,
            Some(_) if self.disk.fault == DiskFault::CrashBefore => Turn::Crashed,
            Some(slow) => self.sync_and_answer(slow),
        }
    }

    fn sync_and_answer(&self, committed: CommittedGroup) -> Turn {
        let safe = committed.sync(&self.disk, &self.shared);
        if self.disk.fault == DiskFault::CrashAfter {
            return Turn::Crashed;
        }
        committed.answer(safe, &self.shared);
        if safe { Turn::Committed } else { Turn::Crashed }
    }
}

impl Transact for SimulatedLog {
    fn run(&mut self, group: &mut RequestGroup<'_>) -> Result<Executed, Error> {
        let mut data = self.committed.clone();
        let (news, wrote) = data.run(instants(&*self.clock), |run| {
            group.run_each(|request, _| run(request))
        })?;
        let last_fact = data.position.fact;
        self.next = Some(data);
        self.dead = self.sync_slow() == Turn::Crashed;
        if self.dead {
            return Err(Error::Lost);
        }
        Ok(Executed {
            news,
            wrote,
            last_fact,
        })
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.disk.fault == DiskFault::Refused {
            return Err(Error::Unavailable("no space left".to_owned()));
        }
        self.committed = self.next.take().unwrap_or_default();
        Ok(())
    }

    fn roll_back(&mut self) {
        self.next = None;
    }

    fn may_blame_request(&self, _: &Error) -> bool {
        // If all requests were executed, the disk failed.
        self.next.is_none()
    }
}

impl SimulatedDisk {
    fn coming(&self) -> MutexGuard<'_, Option<ModelData>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl group::SyncTarget for SimulatedDisk {
    fn sync(&self) -> Result<(), Error> {
        let coming = self
            .coming()
            .take()
            .filter(|_| self.fault != DiskFault::Gone);
        if let Some(data) = coming {
            *self.durable.data() = data;
        }
        if matches!(self.fault, DiskFault::Lost | DiskFault::Gone) {
            return Err(Error::Unavailable("input/output error".to_owned()));
        }
        Ok(())
    }
}

/// Reads go to the model; only writes pass through the group commit.
impl Forwarding for Simulated {
    fn inner(&self) -> &SharedStore {
        &self.durable
    }

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Box::pin(self.submitter.execute(request))
    }

    fn listen(&self, listener: CommitListener) {
        self.shared.listeners.add(listener);
    }

    fn stats(&self) -> Stats {
        Stats {
            failed_commits: self.shared.meters.failed.load(Ordering::Relaxed),
            waiting: self.shared.meters.waiting.load(Ordering::Relaxed),
            ..self.durable.stats()
        }
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

impl fmt::Debug for SimulatedMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedMachine")
    }
}
