//! The generator: one thread, one connection per client, each with one request in flight.
//!
//! Only what ends while the round is open counts. In `pairs` both sides go as fast as they can, and the figure is that of
//! the slower one, which is nearly everywhere the one that claims.
//! Invariant: a round is only free of problems when every claimed job was acknowledged and every request answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::load::{self, Done, Load, Step, WARMUP_SECONDS, Work};

/// What requests in flight may take after the round is closed.
const FINISH_MAX: Duration = Duration::from_secs(10);
/// Longer times than this minute count as this long.
const MICROS_MAX: u64 = 60_000_000;
const FINISH_LOOK: Duration = Duration::from_millis(2);

/// What a client will do on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Publisher,
    Consumer,
    Both,
}

/// A way to open connections to one queue.
pub(crate) trait Protocol {
    type Link: Link + 'static;

    /// Makes the queue, once per round.
    async fn prepare(&self) -> Result<(), Error>;

    async fn connect(&self, role: Role) -> Result<Self::Link, Error>;

    /// Throws away what is left in the queue, so that it burdens no later round.
    async fn clear(&self) -> Result<(), Error>;
}

/// One client. Each step returns when its answer has come; `claim` waits until there is a job.
pub(crate) trait Link {
    type Claimed;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error>;
    async fn claim(&mut self) -> Result<Self::Claimed, Error>;
    async fn ack(&mut self, claimed: Self::Claimed) -> Result<(), Error>;
}

pub(crate) fn run<P: Protocol>(protocol: &P, load: &Load) -> Result<Done, Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        // Else each answer would wake this thread on its own, in the middle of the server's work on the next one.
        .on_thread_park(std::thread::yield_now)
        .build()
        .map_err(Error::io("starting the generator"))?;
    LocalSet::new().block_on(&runtime, async {
        protocol.prepare().await?;
        let floor = Rc::new(Floor::new()?);
        let tasks = match load.work {
            Work::Pairs => {
                let half = load.clients / 2;
                let publishers = open(protocol, Role::Publisher, half).await?;
                let consumers = open(protocol, Role::Consumer, load.clients - half).await?;
                let mut tasks = spawn(publishers, &floor, publisher);
                tasks.extend(spawn(consumers, &floor, consumer));
                tasks
            }
            Work::Cycle => {
                let clients = open(protocol, Role::Both, load.clients).await?;
                spawn(clients, &floor, cycler)
            }
        };
        let mut done = floor.measure(load.duration()).await;
        finish(&tasks, &floor).await;
        protocol.clear().await?;
        done.problems = floor.problems();
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
    floor: &Rc<Floor>,
    client: impl Fn(L, Rc<Floor>) -> F,
) -> Vec<JoinHandle<()>>
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    let spawned = links.into_iter().map(|link| {
        let running = client(link, Rc::clone(floor));
        let floor = Rc::clone(floor);
        tokio::task::spawn_local(async move {
            if let Err(error) = running.await {
                floor.problem(error.to_string());
            }
        })
    });
    spawned.collect()
}

/// Lets the clients end what they began, which those that wait on an empty queue never will.
async fn finish(tasks: &[JoinHandle<()>], floor: &Floor) {
    let give_up_at = Instant::now() + FINISH_MAX;
    while !tasks.iter().all(JoinHandle::is_finished) {
        if floor.is_empty() || floor.is_broken() {
            break;
        }
        if Instant::now() >= give_up_at {
            floor.problem(format!("requests were not answered within {FINISH_MAX:?}"));
            break;
        }
        sleep(FINISH_LOOK).await;
    }
    for task in tasks {
        task.abort();
    }
}

async fn publisher<L: Link>(mut link: L, floor: Rc<Floor>) -> Result<(), Error> {
    let body = load::body();
    while !floor.closed.get() {
        floor.publish(&mut link, &body).await?;
    }
    Ok(())
}

async fn consumer<L: Link>(mut link: L, floor: Rc<Floor>) -> Result<(), Error> {
    while !floor.closed.get() {
        floor.consume(&mut link).await?;
    }
    Ok(())
}

async fn cycler<L: Link>(mut link: L, floor: Rc<Floor>) -> Result<(), Error> {
    let body = load::body();
    while !floor.closed.get() {
        floor.publish(&mut link, &body).await?;
        floor.consume(&mut link).await?;
    }
    Ok(())
}

/// What the clients of one round share. They run on one thread, so cells are enough.
struct Floor {
    begun: Cell<u64>,
    published: Cell<u64>,
    claimed: Cell<u64>,
    acked: Cell<u64>,
    closed: Cell<bool>,
    /// Told when something went wrong, which ends the round.
    broken: Notify,
    problems: RefCell<Vec<String>>,
    steps: RefCell<[(&'static str, Histogram<u64>); 3]>,
}

impl Floor {
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
        bump(&self.begun);
        let asked_at = Instant::now();
        link.publish(body.as_bytes()).await?;
        self.took(0, asked_at);
        bump(&self.published);
        Ok(())
    }

    async fn consume<L: Link>(&self, link: &mut L) -> Result<(), Error> {
        let asked_at = Instant::now();
        let claimed = link.claim().await?;
        self.took(1, asked_at);
        bump(&self.claimed);
        let asked_at = Instant::now();
        link.ack(claimed).await?;
        self.took(2, asked_at);
        bump(&self.acked);
        Ok(())
    }

    /// Keeps the round open for this long after the warm-up, or until something went wrong, and takes the figures.
    async fn measure(&self, length: Duration) -> Done {
        let broken = timeout(Duration::from_secs(WARMUP_SECONDS), self.broken.notified());
        if broken.await.is_ok() {
            // The next wait is to end at once as well.
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
        Done {
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

    fn took(&self, step: usize, asked_at: Instant) {
        if !self.closed.get() {
            self.steps.borrow_mut()[step]
                .1
                .saturating_record(micros(asked_at));
        }
    }

    /// What went wrong, and sums that do not match.
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

fn bump(count: &Cell<u64>) {
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
