//! A store whose disk fails and whose machine crashes when the simulation says so.
//!
//! The group commit is the real one (`crate::group`); the rows are the model's. Invariant: nothing happens by itself:
//! requests wait until [`Machine::turn`], in the caller's own thread. What a crash leaves is the durable copy, never the
//! copy that the running process reads.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consign_kernel::command::Request;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use super::{Data, Memory};
use crate::group::{self, Intake, Job, Line, Meters, Transact};
use crate::{
    Answered, Clock, Count, Dump, Error, EventFilter, EventPage, Executed, IntentFilter,
    IntentPage, Stats, Store,
};

/// What goes wrong with the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The disk refuses; nothing is durable.
    Refused,
    /// The machine dies before anything is durable.
    CrashBefore,
    /// The machine dies after the commit, before anybody heard of it.
    CrashAfter,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nobody waited.
    Idle,
    Committed,
    /// Everybody was refused.
    Failed,
    /// Only [`Machine::restart`] helps.
    Crashed,
}

/// The store as a running process sees it.
pub struct Simulated {
    intake: Intake,
    running: Arc<Memory>,
    meters: Arc<Meters>,
}

/// The other side of it: who writes, and what is on the disk.
pub struct Machine {
    line: Line,
    meters: Arc<Meters>,
    disk: Disk,
    clock: Arc<dyn Clock>,
    requests_max: usize,
}

struct Disk {
    durable: Data,
    running: Arc<Memory>,
    /// The open transaction, and whether it wrote anything.
    next: Option<(Data, bool)>,
    fault: Fault,
}

/// What unwinds when the machine dies: no message, and nobody but [`Machine::turn`] catches it.
struct Died;

pub fn start(clock: Arc<dyn Clock>, requests_max: usize) -> (Arc<Simulated>, Machine) {
    boot(Data::default(), clock, requests_max)
}

fn boot(durable: Data, clock: Arc<dyn Clock>, requests_max: usize) -> (Arc<Simulated>, Machine) {
    let meters = Arc::new(Meters::default());
    let (intake, line) = group::line(requests_max, &meters);
    let running = Arc::new(Memory::new(Arc::clone(&clock)));
    *running.data() = durable.clone();
    let store = Simulated {
        intake,
        running: Arc::clone(&running),
        meters: Arc::clone(&meters),
    };
    let disk = Disk {
        durable,
        running,
        next: None,
        fault: Fault::None,
    };
    let machine = Machine {
        line,
        meters,
        disk,
        clock,
        requests_max,
    };
    (Arc::new(store), machine)
}

impl Machine {
    /// Commits what waits, as one group.
    pub fn turn(&mut self, fault: Fault) -> Turn {
        let mut group = Vec::new();
        self.line.gather_now(&mut group);
        if group.is_empty() {
            return Turn::Idle;
        }
        let failed = self.meters.failed.load(Ordering::Relaxed);
        self.disk.fault = fault;
        let (disk, meters) = (&mut self.disk, &*self.meters);
        // A dead machine is not used again, only its disk is.
        let served = catch_unwind(AssertUnwindSafe(|| group::serve(disk, &mut group, meters)));
        match served {
            Err(why) if why.is::<Died>() => Turn::Crashed,
            Err(why) => resume_unwind(why),
            Ok(()) if self.meters.failed.load(Ordering::Relaxed) > failed => Turn::Failed,
            Ok(()) => Turn::Committed,
        }
    }

    /// A new process over what was durable. Whoever waited for the old one hears nothing any more.
    #[must_use]
    pub fn restart(self) -> (Arc<Simulated>, Self) {
        boot(self.disk.durable, self.clock, self.requests_max)
    }
}

impl Transact for Disk {
    fn run(&mut self, group: &[Job]) -> Result<Vec<Executed>, Error> {
        let mut data = self.running.data().clone();
        let now = self.running.clock.now();
        let (executed, wrote) = data.run(now, group.iter().map(|job| &job.request))?;
        self.next = Some((data, wrote));
        Ok(executed)
    }

    fn commit(&mut self) -> Result<(), Error> {
        match self.fault {
            Fault::None | Fault::CrashAfter => {}
            Fault::Refused => return Err(Error::Unavailable("no space left".to_owned())),
            Fault::CrashBefore => resume_unwind(Box::new(Died)),
        }
        let next = self.next.take().filter(|(_, wrote)| *wrote);
        if let Some((data, _)) = &next {
            self.durable.clone_from(data);
        }
        if self.fault == Fault::CrashAfter {
            resume_unwind(Box::new(Died));
        }
        if let Some((data, _)) = next {
            *self.running.data() = data;
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        self.next = None;
    }
}

/// Reads are the model's; only what is written takes the long way.
impl Store for Simulated {
    fn execute(&self, request: Request) -> Answered<'_, Executed> {
        Box::pin(self.intake.execute(request))
    }

    fn intent(&self, id: IntentId) -> Answered<'_, Option<Intent>> {
        self.running.intent(id)
    }

    fn intents(&self, filter: IntentFilter) -> Answered<'_, IntentPage> {
        self.running.intents(filter)
    }

    fn dead(&self, face: Face, limit: u32) -> Answered<'_, Vec<Intent>> {
        self.running.dead(face, limit)
    }

    fn facts(&self, intent: Seq, limit: u32) -> Answered<'_, Vec<Fact>> {
        self.running.facts(intent, limit)
    }

    fn last_fact_to(&self, intent: Seq, state: State) -> Answered<'_, Option<Fact>> {
        self.running.last_fact_to(intent, state)
    }

    fn events(&self, filter: EventFilter) -> Answered<'_, EventPage> {
        self.running.events(filter)
    }

    fn record(&self, key: record::Key) -> Answered<'_, Option<Record>> {
        self.running.record(key)
    }

    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> Answered<'_, Vec<Record>> {
        self.running.records(kind, owner, after, limit)
    }

    fn counts(&self, face: Face) -> Answered<'_, Vec<Count>> {
        self.running.counts(face)
    }

    fn next_due(&self) -> Answered<'_, Option<Micros>> {
        self.running.next_due()
    }

    fn check(&self) -> Answered<'_, Vec<String>> {
        self.running.check()
    }

    fn dump(&self) -> Answered<'_, Dump> {
        self.running.dump()
    }

    fn stats(&self) -> Stats {
        Stats {
            failed_commits: self.meters.failed.load(Ordering::Relaxed),
            waiting: self.meters.waiting.load(Ordering::Relaxed),
            ..self.running.stats()
        }
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}
