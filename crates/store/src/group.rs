//! Group commit: while one group of requests commits, the next gathers by itself. No timer is needed.
//!
//! Invariant: an answer leaves only after the commit that covers it. The backend brings the transaction ([`Transact`]);
//! who waits, who is answered and when is decided here, alike for all of them.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use consign_kernel::command::Request;
use consign_kernel::plant::{self, Plant};
use tokio::sync::oneshot;

use crate::failpoint::{self, Failpoint};
use crate::{Error, Executed};

/// Requests in one commit: more would only delay the first answer.
const GROUP_REQUESTS_MAX: usize = 1_024;

/// One transaction at a time of a backend.
pub(crate) trait Transact {
    /// Opens a transaction and carries out the group in it. An error leaves it to [`Transact::roll_back`].
    fn run(&mut self, group: &[Job]) -> Result<Vec<Executed>, Error>;
    /// Returns when the transaction is safe on disk.
    fn commit(&mut self) -> Result<(), Error>;
    fn roll_back(&mut self);
}

#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) commits: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) last_fact: AtomicU64,
}

/// A request and who waits for its answer.
pub(crate) struct Job {
    pub(crate) request: Request,
    answer: oneshot::Sender<Delivery>,
}

/// Where requests come in.
pub(crate) struct Intake {
    queue: Mutex<Option<SyncSender<Job>>>,
    meters: Arc<Meters>,
}

/// Where the requests that wait are taken from.
pub(crate) struct Line {
    jobs: Receiver<Job>,
    meters: Arc<Meters>,
}

pub(crate) fn line(requests_max: usize, meters: &Arc<Meters>) -> (Intake, Line) {
    let (queue, jobs) = sync_channel(requests_max);
    let intake = Intake {
        queue: Mutex::new(Some(queue)),
        meters: Arc::clone(meters),
    };
    let line = Line {
        jobs,
        meters: Arc::clone(meters),
    };
    (intake, line)
}

impl Intake {
    pub(crate) async fn execute(&self, request: Request) -> Result<Executed, Error> {
        let (answer, answered) = oneshot::channel();
        self.enqueue(Job { request, answer })?;
        let Delivery { own, others } = answered.await.map_err(|_| Error::Closed)?;
        drop(others);
        own
    }

    fn enqueue(&self, job: Job) -> Result<(), Error> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or(Error::Closed)?;
        self.meters.waiting.fetch_add(1, Ordering::Relaxed);
        queue.try_send(job).map_err(|refused| {
            self.meters.waiting.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(_) => Error::Busy,
                TrySendError::Disconnected(_) => Error::Closed,
            }
        })
    }

    /// What waits is still answered; later requests are refused.
    pub(crate) fn close(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

impl Line {
    /// Waits for a request and takes all that are there. False when the intake is closed and nothing waits.
    pub(crate) fn gather(&self, group: &mut Vec<Job>) -> bool {
        let Ok(first) = self.jobs.recv() else {
            return false;
        };
        group.push(first);
        while group.len() < GROUP_REQUESTS_MAX
            && let Ok(job) = self.jobs.try_recv()
        {
            group.push(job);
        }
        let taken = group.len() as u64;
        self.meters.waiting.fetch_sub(taken, Ordering::Relaxed);
        // A request whose caller went away before its turn would only do work nobody sees answered.
        group.retain(|job| !job.answer.is_closed());
        true
    }
}

/// Commits the group and answers everybody in it; or, when the commit failed, refuses everybody.
pub(crate) fn serve(backend: &mut impl Transact, group: &mut Vec<Job>, meters: &Meters) {
    if group.is_empty() {
        return;
    }
    meters
        .requests
        .fetch_add(group.len() as u64, Ordering::Relaxed);
    failpoint::hit(Failpoint::BeforeWrite);
    let done = run_guarded(backend, group).and_then(|executed| {
        failpoint::hit(Failpoint::AfterWrite);
        if plant::on(Plant::AnswerBeforeCommit) {
            deliver(group, executed);
            std::thread::sleep(std::time::Duration::from_millis(20));
            backend.commit()?;
            return Ok(Vec::new());
        }
        backend.commit()?;
        Ok(executed)
    });
    match done {
        Ok(executed) => {
            failpoint::hit(Failpoint::AfterCommit);
            deliver(group, executed);
        }
        Err(error) => {
            backend.roll_back();
            meters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, requests = group.len(), "commit failed, nothing was acknowledged");
            for job in group.drain(..) {
                // Nobody listens when the caller went away.
                let _ = job.answer.send(Delivery::refusal(&error));
            }
        }
    }
}

/// A mistake of ours in one request must not end the only thread that writes: its group is rolled back and refused.
fn run_guarded(backend: &mut impl Transact, group: &[Job]) -> Result<Vec<Executed>, Error> {
    // Nothing of the backend is relied upon before the commit, and the transaction is rolled back.
    let run = AssertUnwindSafe(|| backend.run(group));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        Err(Error::Unavailable(
            "a rule failed its own checks; the log tells where".to_owned(),
        ))
    })
}

/// Hands all answers to the first one in the group, which passes the others on: they wait on the same runtime, where
/// a wake is cheap, while each one sent from here might be a system call.
fn deliver(group: &mut Vec<Job>, executed: Vec<Executed>) {
    let mut answers = group
        .drain(..)
        .zip(executed)
        .map(|(job, executed)| (job.answer, Ok(executed)));
    let Some((first, own)) = answers.next() else {
        return;
    };
    let others = Others(answers.collect());
    // If the first one went away, its others are answered as this comes back and is dropped.
    let _ = first.send(Delivery { own, others });
}

/// An answer, and the answers of neighbours that come along with it.
struct Delivery {
    own: Result<Executed, Error>,
    others: Others,
}

impl Delivery {
    fn refusal(error: &Error) -> Self {
        Self {
            own: Err(Error::Unavailable(error.to_string())),
            others: Others(Vec::new()),
        }
    }
}

/// Passed on when dropped, so that they arrive even if whoever carries them goes away.
struct Others(Vec<(oneshot::Sender<Delivery>, Result<Executed, Error>)>);

impl Drop for Others {
    fn drop(&mut self) {
        for (answer, own) in self.0.drain(..) {
            let others = Self(Vec::new());
            let _ = answer.send(Delivery { own, others });
        }
    }
}
