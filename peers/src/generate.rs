//! The generator: one thread besides those of a client library, one connection per client, each with one request in flight.
//!
//! Only steps that end while the round is open count. In `pairs` both sides run as fast as they can, and the figure is that
//! of the slower one, which is usually the one that claims.
//! Invariant: a round without problems has acknowledged every claimed job and has an answer to every request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::load::{self, Load, RoundResult, Step, WARMUP_SECONDS, Work};

/// The time limit of requests in flight after the round is closed.
const FINISH_MAX: Duration = Duration::from_secs(10);
/// Longer times than this minute count as this long.
const MICROS_MAX: u64 = 60_000_000;
const FINISH_POLL: Duration = Duration::from_millis(2);

/// The steps of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Publisher,
    Consumer,
    Both,
}

/// Opens connections to one queue.
pub(crate) trait Protocol {
    type Link: Link + 'static;

    /// Makes the queue, once per round.
    async fn prepare(&self) -> Result<(), Error>;

    async fn connect(&self, role: Role) -> Result<Self::Link, Error>;

    /// Deletes the queue with the jobs that are left, so that they do not affect later rounds.
    async fn clear(&self) -> Result<(), Error>;
}

/// One client. Each step returns when its answer has come; `claim` waits until there is a job.
pub(crate) trait Link {
    type Claimed;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error>;
    async fn claim(&mut self) -> Result<Self::Claimed, Error>;
    async fn ack(&mut self, claimed: Self::Claimed) -> Result<(), Error>;
}

pub(crate) fn run<P: Protocol>(protocol: &P, load: &Load) -> Result<RoundResult, Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        // Otherwise each answer would wake this thread at once and interrupt the server's work on the next one.
        .on_thread_park(std::thread::yield_now)
        .build()
        .map_err(Error::io("starting the generator"))?;
    LocalSet::new().block_on(&runtime, async {
        protocol.prepare().await?;
        let state = Rc::new(RoundState::new()?);
        let tasks = match load.work {
            Work::Pairs => {
                let half = load.clients / 2;
                let publishers = open(protocol, Role::Publisher, half).await?;
                let consumers = open(protocol, Role::Consumer, load.clients - half).await?;
                let mut tasks = spawn(publishers, &state, publisher);
                tasks.extend(spawn(consumers, &state, consumer));
                tasks
            }
            Work::Cycle => {
                let clients = open(protocol, Role::Both, load.clients).await?;
                spawn(clients, &state, cycler)
            }
        };
        let mut done = state.measure(load.duration()).await;
        finish(&tasks, &state).await;
        protocol.clear().await?;
        done.problems = state.problems();
        Ok(done)
    })
}

async fn open<P: Protocol>(protocol: &P, role: Role, count: usize) -> Result<Vec<P::Link>, Error> {
    let mut links = Vec::with_capacity(count);
    for _ in 0..count {
        links.push(protocol.connect(role).await?);
    }
    Ok(links)
}

fn spawn<L: Link + 'static, F>(
    links: Vec<L>,
    state: &Rc<RoundState>,
    client: impl Fn(L, Rc<RoundState>) -> F,
) -> Vec<JoinHandle<()>>
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    let spawned = links.into_iter().map(|link| {
        let running = client(link, Rc::clone(state));
        let state = Rc::clone(state);
        tokio::task::spawn_local(async move {
            if let Err(error) = running.await {
                state.problem(error.to_string());
            }
        })
    });
    spawned.collect()
}

/// Waits until the clients have finished their requests; those that wait on an empty queue are aborted.
async fn finish(tasks: &[JoinHandle<()>], state: &RoundState) {
    let give_up_at = Instant::now() + FINISH_MAX;
    while !tasks.iter().all(JoinHandle::is_finished) {
        if state.is_empty() || state.is_broken() {
            break;
        }
        if Instant::now() >= give_up_at {
            state.problem(format!("requests were not answered within {FINISH_MAX:?}"));
            break;
        }
        sleep(FINISH_POLL).await;
    }
    for task in tasks {
        task.abort();
    }
}

async fn publisher<L: Link>(mut link: L, state: Rc<RoundState>) -> Result<(), Error> {
    let body = load::body();
    while !state.closed.get() {
        state.publish(&mut link, &body).await?;
    }
    Ok(())
}

async fn consumer<L: Link>(mut link: L, state: Rc<RoundState>) -> Result<(), Error> {
    while !state.closed.get() {
        state.consume(&mut link).await?;
    }
    Ok(())
}

async fn cycler<L: Link>(mut link: L, state: Rc<RoundState>) -> Result<(), Error> {
    let body = load::body();
    while !state.closed.get() {
        state.publish(&mut link, &body).await?;
        state.consume(&mut link).await?;
    }
    Ok(())
}

/// The counters that the clients of one round share. They run on one thread, so cells suffice.
struct RoundState {
    begun: Cell<u64>,
    published: Cell<u64>,
    claimed: Cell<u64>,
    acked: Cell<u64>,
    closed: Cell<bool>,
    /// Notified of the first problem, which ends the round.
    broken: Notify,
    problems: RefCell<Vec<String>>,
    steps: RefCell<[(&'static str, Histogram<u64>); 3]>,
}

impl RoundState {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            begun: Cell::default(),
            published: Cell::default(),
            claimed: Cell::default(),
            acked: Cell::default(),
            closed: Cell::default(),
            broken: Notify::new(),
            problems: RefCell::default(),
            steps: RefCell::new([
                ("publish", histogram()?),
                ("claim", histogram()?),
                ("ack", histogram()?),
            ]),
        })
    }

    async fn publish<L: Link>(&self, link: &mut L, body: &str) -> Result<(), Error> {
        increment(&self.begun);
        let asked_at = Instant::now();
        link.publish(body.as_bytes()).await?;
        self.record_time(0, asked_at);
        increment(&self.published);
        Ok(())
    }

    async fn consume<L: Link>(&self, link: &mut L) -> Result<(), Error> {
        let asked_at = Instant::now();
        let claimed = link.claim().await?;
        self.record_time(1, asked_at);
        increment(&self.claimed);
        let asked_at = Instant::now();
        link.ack(claimed).await?;
        self.record_time(2, asked_at);
        increment(&self.acked);
        Ok(())
    }

    /// Keeps the round open for this long after the warm-up, or until something went wrong, and takes the figures.
    async fn measure(&self, length: Duration) -> RoundResult {
        let broken = timeout(Duration::from_secs(WARMUP_SECONDS), self.broken.notified());
        if broken.await.is_ok() {
            // The next wait must end at once as well.
            self.broken.notify_one();
        }
        let (published, acked) = (self.published.get(), self.acked.get());
        for (_, times) in self.steps.borrow_mut().iter_mut() {
            times.reset();
        }
        let opened_at = Instant::now();
        let _ended_early = timeout(length, self.broken.notified()).await.is_ok();
        self.closed.set(true);
        let (published, acked) = (self.published.get() - published, self.acked.get() - acked);
        let steps = self.steps.borrow();
        RoundResult {
            jobs: acked.min(published),
            published,
            seconds: opened_at.elapsed().as_secs_f64(),
            steps: steps
                .iter()
                .map(|(name, times)| step(name, times))
                .collect(),
            problems: Vec::new(),
            busy: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.begun.get() == self.acked.get()
    }

    fn is_broken(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    fn problem(&self, problem: String) {
        self.problems.borrow_mut().push(problem);
        self.broken.notify_one();
    }

    fn record_time(&self, step: usize, asked_at: Instant) {
        if !self.closed.get() {
            self.steps.borrow_mut()[step]
                .1
                .saturating_record(micros(asked_at));
        }
    }

    /// The problems, including counts that do not match.
    fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.take();
        let [published, claimed, acked] =
            [&self.published, &self.claimed, &self.acked].map(Cell::get);
        if claimed != acked || claimed > self.begun.get() {
            problems.push(format!(
                "published {published}, claimed {claimed}, acknowledged {acked}"
            ));
        }
        problems
    }
}

fn increment(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

pub(crate) fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, MICROS_MAX, 3)
        .map_err(|error| Error::Program(format!("making a histogram: {error}")))
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn step(name: &str, micros: &Histogram<u64>) -> Step {
    let at = |quantile| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "microseconds of a short round are far below 2^52"
        )]
        let micros = micros.value_at_quantile(quantile) as f64;
        micros / 1000.0
    };
    Step {
        name: name.to_owned(),
        p50_ms: at(0.5),
        p99_ms: Some(at(0.99)),
    }
}

#[cfg(test)]
mod tests;
