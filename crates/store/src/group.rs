//! Group commit: while one group of requests commits, the next gathers by itself. No timer is needed.
//!
//! Invariant: an answer leaves only after the commit that covers it. The backend brings the transaction ([`Transact`]);
//! who waits, who is answered and when is decided here, alike for all of them. What a commit did is heard by somebody
//! even if its caller went away: others wait to be woken by it.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    unheard: Arc<Unheard>,
}

/// What was committed and whose caller did not wait for the answer. Whoever is answered next passes the news on.
#[derive(Default)]
struct Unheard(Mutex<Vec<Executed>>);

impl Unheard {
    fn keep(&self, executed: Executed) {
        if !executed.ripe.is_empty() || executed.wake_at.is_some() || !executed.told.is_empty() {
            self.lock().push(executed);
        }
    }

    fn add_to(&self, own: &mut Executed) {
        for other in self.lock().drain(..) {
            own.ripe.extend(other.ripe);
            own.wake_at = own.wake_at.into_iter().chain(other.wake_at).min();
            own.told.extend(other.told);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Executed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where requests come in.
pub(crate) struct Intake {
    queue: Mutex<Option<SyncSender<Job>>>,
    meters: Arc<Meters>,
    unheard: Arc<Unheard>,
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
        unheard: Arc::default(),
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
        let unheard = Arc::clone(&self.unheard);
        self.enqueue(Job {
            request,
            answer,
            unheard,
        })?;
        let mut delivery = answered.await.map_err(|_| Error::Closed)?;
        let mut own = delivery.own.take().unwrap_or(Err(Error::Closed))?;
        drop(delivery);
        self.unheard.add_to(&mut own);
        Ok(own)
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
        self.gather_now(group);
        true
    }

    /// Takes what is there, without waiting.
    pub(crate) fn gather_now(&self, group: &mut Vec<Job>) {
        while group.len() < GROUP_REQUESTS_MAX
            && let Ok(job) = self.jobs.try_recv()
        {
            group.push(job);
        }
        let taken = group.len() as u64;
        self.meters.waiting.fetch_sub(taken, Ordering::Relaxed);
        // A request whose caller went away before its turn would only do work nobody sees answered.
        group.retain(|job| !job.answer.is_closed());
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
            let reason = if let Error::Unavailable(reason) = error {
                reason
            } else {
                error.to_string()
            };
            for job in group.drain(..) {
                // Nobody listens when the caller went away.
                let refusal = Err(Error::Unavailable(reason.clone()));
                let _ = job.answer.send(Delivery::alone(refusal, job.unheard));
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
    let mut answers = group.drain(..).zip(executed).map(|(job, executed)| Other {
        answer: job.answer,
        own: Ok(executed),
        unheard: job.unheard,
    });
    let Some(first) = answers.next() else {
        return;
    };
    let others = answers.collect();
    // If the first one went away, its others are answered as this comes back and is dropped.
    let _ = first.answer.send(Delivery {
        own: Some(first.own),
        unheard: first.unheard,
        others,
    });
}

/// An answer, and the answers of neighbours that come along with it.
struct Delivery {
    /// Taken by whoever hears it.
    own: Option<Result<Executed, Error>>,
    unheard: Arc<Unheard>,
    others: Vec<Other>,
}

impl Delivery {
    fn alone(own: Result<Executed, Error>, unheard: Arc<Unheard>) -> Self {
        Self {
            own: Some(own),
            unheard,
            others: Vec::new(),
        }
    }
}

/// The others are answered even if whoever carries them went away, and then its own news is kept.
impl Drop for Delivery {
    fn drop(&mut self) {
        for other in self.others.drain(..) {
            let _ = other.answer.send(Self::alone(other.own, other.unheard));
        }
        if let Some(Ok(executed)) = self.own.take() {
            self.unheard.keep(executed);
        }
    }
}

struct Other {
    answer: oneshot::Sender<Delivery>,
    own: Result<Executed, Error>,
    unheard: Arc<Unheard>,
}
