//! A whole run: load, start the threads, sample between rounds, collect.
//!
//! Invariant: clients run without a break from warm-up to end; rounds are cut out by time, so no round begins
//! cold. Requests in progress at the end are dropped and not counted.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use consign_client::Address;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout_at};

use crate::Error;
use crate::client::{ClientRole, LoadClient, RunContext, roles};
use crate::connection::BenchConnection;
use crate::load;
use crate::metrics::{self, Counters};
use crate::pace::{StartPace, StartSchedule};
use crate::plan::{BenchPlan, BenchTarget, Workload};
use crate::relay::{self, RelayClient, RelayRole};
use crate::report::{BenchReport, Measured};
use crate::request::{random_word, scrape};
use crate::tally::{Phases, RunTally};
use crate::usage::{Ticks, cpu_seconds, memory};

/// For opening the connections before the measurement begins.
const RUN_UP: Duration = Duration::from_millis(200);
const RUN_UP_PER_CLIENT: Duration = Duration::from_millis(1);
/// Shorter intervals show single commits and no trend.
const BUCKET_MIN: Duration = Duration::from_millis(100);
const BUCKETS_MAX: u32 = 100;
/// A listening server may not have started all its threads yet.
const SETTLE: Duration = Duration::from_millis(100);

/// Executes the plan; `progress` receives progress messages.
pub async fn run(plan: BenchPlan, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, Error> {
    let plan = Arc::new(plan);
    let server = resolve(&plan.target.server).await?;
    let rss_start_bytes = rss_start(&plan.target).await;
    let goal: Arc<str> = format!("run-{}", random_word()?).into();
    load::load(&plan, server, &goal, progress).await?;
    let mut observer = Observer::connect(&plan, server).await?;

    let clients = u32::try_from(plan.clients).unwrap_or(u32::MAX);
    let begin = Instant::now() + RUN_UP + RUN_UP_PER_CLIENT * clients;
    let phases = phases(&plan, begin);
    let pace = Arc::new(match plan.rate {
        Some(rate) => StartPace::Open(StartSchedule::new(begin, rate)),
        None => StartPace::Closed,
    });
    let around = RunContext {
        plan: Arc::clone(&plan),
        server,
        goal,
        pace: Arc::clone(&pace),
        epoch: begin,
        next_order: Arc::default(),
    };
    let (working, mut all_done) = mpsc::channel(1);
    let threads = start(&around, phases, &working)?;
    drop(working);
    let releasing = match &*pace {
        StartPace::Closed => None,
        StartPace::Open(_) => Some(start_releasing(Arc::clone(&pace))?),
    };
    progress(&format!(
        "running {} clients, {:.1} s of warm-up and {} x {:.1} s",
        plan.clients,
        plan.warmup.as_secs_f64(),
        plan.rounds,
        plan.round.as_secs_f64(),
    ));

    let mut samples = Vec::with_capacity(plan.rounds + 1);
    for boundary in 0..=plan.rounds {
        tokio::select! {
            // A channel without senders means that every thread has ended.
            _ = all_done.recv() => {}
            () = sleep_until(phases.boundary(boundary).into()) => {}
        }
        samples.push(observer.sample().await);
    }

    let mut tally = RunTally::new(phases);
    for thread in threads {
        tally.merge(&thread.join().map_err(|_| Error::Panicked)??);
    }
    if let (StartPace::Open(schedule), Some(releasing)) = (&*pace, releasing) {
        schedule.end();
        releasing.join().map_err(|_| Error::Panicked)?;
    }
    Ok(BenchReport::of(&Measured {
        plan: &plan,
        phases,
        tally: &tally,
        samples: &samples,
        rss_start_bytes,
        not_started: pace.not_started(phases.end()),
    }))
}

/// Resident bytes before anything was loaded.
pub(crate) async fn rss_start(target: &BenchTarget) -> Option<u64> {
    let pid = target.pid?;
    tokio::time::sleep(SETTLE).await;
    memory(pid).map(|(now, _)| now)
}

pub(crate) async fn resolve(server: &Address) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Connect {
        server: server.to_string(),
        source,
    };
    let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
    let first = found.map_err(failed)?.next();
    first.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
}

fn phases(plan: &BenchPlan, begin: Instant) -> Phases {
    let rounds = u32::try_from(plan.rounds).unwrap_or(u32::MAX);
    Phases {
        measure_from: begin + plan.warmup,
        round: plan.round,
        rounds: plan.rounds,
        bucket: (plan.round * rounds / BUCKETS_MAX).max(BUCKET_MIN),
    }
}

/// A client that a thread runs.
#[derive(Debug, Clone, Copy)]
enum RunRole {
    Load(usize, ClientRole),
    Relay(RelayRole),
}

fn run_roles(plan: &BenchPlan) -> Vec<RunRole> {
    if matches!(plan.work, Workload::Relay | Workload::RelaySocket) {
        return relay::roles(plan).into_iter().map(RunRole::Relay).collect();
    }
    let roles = roles(plan).into_iter().enumerate();
    roles
        .map(|(index, role)| RunRole::Load(index, role))
        .collect()
}

type LoadThread = JoinHandle<Result<RunTally, Error>>;

fn start(
    around: &RunContext,
    phases: Phases,
    working: &mpsc::Sender<()>,
) -> Result<Vec<LoadThread>, Error> {
    let roles = run_roles(&around.plan);
    let per_thread = roles.len().div_ceil(around.plan.threads).max(1);
    roles
        .chunks(per_thread)
        .map(|share| {
            let (around, share, working) = (around.clone(), share.to_vec(), working.clone());
            thread::Builder::new()
                .name("load".to_owned())
                .spawn(move || {
                    let _working = working;
                    drive(&around, phases, &share)
                })
                .map_err(Error::Thread)
        })
        .collect()
}

/// One thread with its clients, until the end or until all of them are done.
fn drive(around: &RunContext, phases: Phases, share: &[RunRole]) -> Result<RunTally, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Otherwise each answer would wake this thread during the server's work on the next one.
        .on_thread_park(thread::yield_now)
        .build();
    let runtime = runtime.map_err(Error::Thread)?;
    let tally = Rc::new(RefCell::new(RunTally::new(phases)));
    let clients = LocalSet::new();
    clients.block_on(&runtime, async {
        let mut running = Vec::with_capacity(share.len());
        let mut ready = Vec::with_capacity(share.len());
        for role in share {
            ready.push(connect(around, *role, Rc::clone(&tally)).await?);
        }
        sleep_until(around.epoch.into()).await;
        for client in ready {
            running.push(tokio::task::spawn_local(client));
        }
        let all = async {
            for client in running {
                client.await.map_err(|_| Error::Panicked)?;
            }
            Ok(())
        };
        timeout_at(phases.end().into(), all).await.unwrap_or(Ok(()))
    })?;
    // Dropping the clients releases their shares of the tally.
    drop(clients);
    let tally = Rc::try_unwrap(tally).map_err(|_| Error::Panicked)?;
    Ok(tally.into_inner())
}

/// Connects a client; the future runs it.
async fn connect(
    around: &RunContext,
    role: RunRole,
    tally: Rc<RefCell<RunTally>>,
) -> Result<Pin<Box<dyn Future<Output = ()>>>, Error> {
    Ok(match role {
        RunRole::Load(index, role) => {
            let client = LoadClient::connect(around, role, index, tally).await?;
            Box::pin(client.run())
        }
        RunRole::Relay(role) => {
            let client = RelayClient::connect(around, role, tally).await?;
            Box::pin(client.run())
        }
    })
}

fn start_releasing(pace: Arc<StartPace>) -> Result<JoinHandle<()>, Error> {
    let releasing = thread::Builder::new().name("pace".to_owned());
    let releasing = releasing.spawn(move || {
        if let StartPace::Open(schedule) = &*pace {
            schedule.release();
        }
    });
    releasing.map_err(Error::Thread)
}

/// The sample at the boundary of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerSample {
    pub(crate) at: Instant,
    pub(crate) generator_cpu_s: Option<f64>,
    pub(crate) server_cpu_s: Option<f64>,
    pub(crate) counters: Option<Counters>,
    pub(crate) machine: Option<Ticks>,
}

/// Samples clocks and counters during the load, over a connection of its own.
struct Observer {
    server_pid: Option<u32>,
    metrics: Option<(BenchConnection, Vec<u8>)>,
}

impl Observer {
    async fn connect(plan: &BenchPlan, server: SocketAddr) -> Result<Self, Error> {
        let target = &plan.target;
        let metrics = match &target.admin_token {
            None => None,
            Some(token) => {
                let connection = BenchConnection::open(server).await;
                let connection = connection.map_err(|source| Error::Connect {
                    server: target.server.to_string(),
                    source,
                })?;
                Some((connection, scrape(&target.server, token)))
            }
        };
        Ok(Self {
            server_pid: target.pid,
            metrics,
        })
    }

    async fn sample(&mut self) -> ServerSample {
        let server = self.server_pid.map(|pid| pid.to_string());
        ServerSample {
            at: Instant::now(),
            generator_cpu_s: cpu_seconds("self"),
            server_cpu_s: server.and_then(|pid| cpu_seconds(&pid)),
            counters: match &mut self.metrics {
                Some((connection, request)) => metrics::read(connection, request).await,
                None => None,
            },
            machine: Ticks::read(),
        }
    }
}
