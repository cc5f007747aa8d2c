//! `consign bench`: the load, the server, and the report.

mod ask;
mod beam_agents;
mod empty;
mod flag_rules;
mod mesh;
mod private_server;
mod relay;
mod transact;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{ValueEnum, value_parser};
use consign_bench::{
    BATCH_MAX, BenchPlan, BenchReport, BenchTarget, Error, NAMESPACE, RestartSample, Workload,
};
use consign_client::{Address, SecretKey};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::given;
use crate::out;

pub(crate) use empty::EmptyArgs;
use private_server::{PrivateServer, ServerMode};

const AFTER_HELP: &str = "\
Without --url a private server is started in a temporary directory, loaded, and
removed. With --url a running server is loaded; all intents are in the namespace
bench (and bench-0 to bench-99 with --backlog-mix), and the server deletes those
that stay open after a day.

In a closed loop (the default) each client sends its next request after the last
response, which measures the highest throughput. With --rate, work starts at a fixed
rate, and latency counts from when it was due, which measures what users observe.

Claims of pairs and handoff wait for work, and their latency includes that.

Examples:
  consign bench                                     whole cycles, 64 clients, 10 s
  consign bench --work publish --clients 16
  consign bench --rate 2000 --seconds 30            latency at 2000 cycles per second
  consign bench --work handoff --clients 8          from publish to a waiting worker
  consign bench --work drain --backlog 200000
  consign bench --work empty                        what HTTP alone could do here
  consign bench --work restart --backlog 1000000    from a kill to the first claim
  consign bench --work transact                     agents' transactions, against cycles
  consign bench --work relay                        signed intents of Beam, against cycles
  consign bench --work mesh                         a daemon of the mesh and its broker
  consign bench --rounds 5 --json --svg bench.svg

A run with any error reports it and exits with 1.";

/// The rate of `handoff` when none is given: low, so that nothing queues.
const HANDOFF_RATE: f64 = 50.0;
const CLIENTS: usize = 64;
const SECONDS: f64 = 10.0;
const WARMUP_SECONDS: f64 = 2.0;
/// The default wait of claims.
const WAIT_SECONDS: f64 = 5.0;

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What the clients do
    #[arg(long, value_enum, default_value = "cycle")]
    work: WorkArg,

    /// Connections that work at the same time [default: 64]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,

    /// Length of one measured round [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,

    /// Time to run before anything is measured [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warmup: Option<f64>,

    /// Measured rounds, one after the other; the report has the median and the spread
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,

    /// Start this many pieces of work per second instead of as many as possible
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Size of each payload
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    payload_bytes: usize,

    /// Open intents in the server before the measurement begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    backlog: u64,

    /// Add a mixed backlog that no claim matches: a sixth each delayed with a higher priority, for other workers, and
    /// in other namespaces; half of it with 1000 other goals
    #[arg(long, requires = "backlog")]
    backlog_mix: bool,

    /// Fulfilled intents in the server before the measurement begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    finished: u64,

    /// Sign every request with a fresh nonce
    #[arg(long)]
    signed: bool,

    /// Nonces that are burnt before the measurement begins; the server deletes each after 11 minutes
    #[arg(long, value_name = "N", default_value_t = 0, requires = "signed")]
    nonces: u64,

    /// Intents per request of `--work batch`, 1 to 100 [default: 100]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// How long claims of `pairs` and `handoff` wait, 0 to 30 [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<f64>,

    /// Threads that generate load; one saturates more than one server [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Write the report to a file as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Draw latencies and throughput into a file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: LoadTargetArgs,
}

/// The server to load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
struct LoadTargetArgs {
    /// Load the running server at this base URL; it needs its key
    #[arg(long, value_name = "URL", conflicts_with = "dir")]
    url: Option<String>,

    /// API key; prefer --key-file or the variable, other users can see arguments
    #[arg(long, value_name = "KEY", env = "CONSIGN_KEY", hide_env_values = true)]
    key: Option<SecretKey>,

    /// File that holds the API key; wins over --key
    #[arg(long, value_name = "FILE", requires = "url")]
    key_file: Option<PathBuf>,

    /// Admin token, to read commits from /metrics; prefer --admin-token-file
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CONSIGN_ADMIN_TOKEN",
        hide_env_values = true
    )]
    admin_token: Option<SecretKey>,

    /// File that holds the admin token; wins over --admin-token
    #[arg(long, value_name = "FILE", requires = "url")]
    admin_token_file: Option<PathBuf>,

    /// Process id of the server behind --url, if it runs on this machine, to measure its CPU time
    #[arg(long, value_name = "PID", requires = "url", value_parser = value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Database for the ledger of the private server, as for `serve --store`; it should be new, and the data stays
    /// there
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    store: Option<String>,

    /// Directory for the data of the private server, in a new directory that is removed afterwards [default: the
    /// system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkArg {
    /// Each client publishes, claims and fulfils
    Cycle,
    /// Half of the clients publish, the others claim and fulfil
    Pairs,
    /// Only publish
    Publish,
    /// Claim and fulfil the backlog
    Drain,
    /// Publish, then fulfil the current intent and claim the next in one request
    Next,
    /// Whole cycles with many intents per request
    Batch,
    /// Three POST requests that the HTTP server answers without any work
    Empty,
    /// One publisher at a low rate and waiting workers; time from publish to claim
    Handoff,
    /// Kill the loaded server, start it, claim; time from its start to the response, in each round
    Restart,
    /// Whole cycles, then agent transactions without effect: authorize a signed intent, execute it; their ratio, and
    /// the time to verify a receipt
    Transact,
    /// Whole cycles, then signed intents of Beam over HTTP, to recipients on sockets that answer at once; their ratio
    Relay,
    /// The same with senders on sockets
    RelaySocket,
    /// Publishes, then messages to a daemon of the mesh from 16 clients over its Unix socket; their ratio, how fast a
    /// backlog of 100,000 (or --backlog) drains, and the memory of an idle daemon
    Mesh,
    /// 1,000 agents of Beam and 1,000 readers of its feed that are connected and do nothing; the memory for each
    IdleSockets,
}

impl From<WorkArg> for Workload {
    fn from(work: WorkArg) -> Self {
        match work {
            WorkArg::Cycle => Self::Cycle,
            WorkArg::Pairs => Self::Pairs,
            WorkArg::Publish => Self::Publish,
            WorkArg::Drain => Self::Drain,
            WorkArg::Next => Self::Next,
            WorkArg::Batch => Self::Batch,
            WorkArg::Empty => Self::Empty,
            WorkArg::Handoff => Self::Handoff,
            WorkArg::Restart => Self::Restart,
            WorkArg::Transact => Self::Transact,
            WorkArg::Relay => Self::Relay,
            WorkArg::RelaySocket => Self::RelaySocket,
            WorkArg::Mesh => Self::Mesh,
            WorkArg::IdleSockets => Self::IdleSockets,
        }
    }
}

impl Args {
    pub(crate) async fn run(self: Box<Self>) -> anyhow::Result<Exit> {
        self.refuse_unused()?;
        // Checked before a server is started for nothing.
        self.check_against(BenchTarget {
            server: Address::parse("http://127.0.0.1:1")?,
            key: SecretKey::new(""),
            admin_token: None,
            pid: None,
            dir: None,
        })?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        tokio::select! {
            exit = Box::pin(self.measure()) => exit,
            // Returning drops the private server, which kills it and removes its data.
            _ = interrupt.recv() => Err(Failure::failed("interrupted").into()),
            _ = terminate.recv() => Err(Failure::failed("terminated").into()),
        }
    }

    async fn measure(&self) -> anyhow::Result<Exit> {
        // Dropped at the end, which kills the server.
        let (target, mut running) = self.target().await?;
        let plan = self.check_against(target)?;
        if let Some(dir) = &plan.target.dir {
            let kind = consign_bench::filesystem(dir).unwrap_or_else(|| "unknown".to_owned());
            out::note(&format!(
                "private server at {}, data in {} ({kind})",
                plan.target.server,
                dir.display()
            ));
        }
        let mut tell = |line: &str| out::note(line);
        if let (Workload::Restart, Some(server)) = (plan.work, &mut running) {
            let restart = async || -> anyhow::Result<RestartSample> {
                let began = server.restart().await?;
                let target = server.target()?;
                Ok(RestartSample { target, began })
            };
            let report = consign_bench::restarts(plan, restart, &mut tell).await?;
            self.show(&report, consign_bench::restart_table)?;
            return Ok(Exit::Done);
        }
        if plan.work == Workload::Transact {
            let findings = transact::measure(plan, &mut tell).await?;
            self.show(&findings, transact::table)?;
            verdict(&findings.cycles)?;
            return verdict(&findings.transactions);
        }
        if matches!(plan.work, Workload::Relay | Workload::RelaySocket) {
            let findings = relay::measure(plan, &mut tell).await?;
            self.show(&findings, relay::table)?;
            verdict(&findings.cycles)?;
            return verdict(&findings.intents);
        }
        if let (Workload::Mesh, Some(server)) = (plan.work, &running) {
            let report = mesh::measure(server, plan, &mut tell).await?;
            self.show(&report, mesh::table)?;
            return verdict(&report.publishes);
        }
        if let (Workload::IdleSockets, Some(server)) = (plan.work, &mut running) {
            let report = relay::idle(server, &mut tell).await?;
            self.show(&report, relay::idle_table)?;
            return Ok(Exit::Done);
        }
        let report = load(plan, &mut tell).await?;
        if let Some(path) = &self.svg {
            write(path, &consign_bench::svg(&report))?;
        }
        self.show(&report, consign_bench::table)?;
        verdict(&report)
    }

    /// The server named, or one of our own that lives as long as the second value.
    async fn target(&self) -> anyhow::Result<(BenchTarget, Option<PrivateServer>)> {
        let server = &self.server;
        let Some(url) = &server.url else {
            let mode = match self.work {
                WorkArg::Empty => ServerMode::Empty,
                WorkArg::Transact => ServerMode::Site,
                WorkArg::Relay | WorkArg::RelaySocket | WorkArg::IdleSockets => {
                    ServerMode::Directory
                }
                WorkArg::Mesh => ServerMode::Broker,
                WorkArg::Cycle
                | WorkArg::Pairs
                | WorkArg::Publish
                | WorkArg::Drain
                | WorkArg::Next
                | WorkArg::Batch
                | WorkArg::Handoff
                | WorkArg::Restart => ServerMode::Serve,
            };
            let started =
                PrivateServer::start(mode, server.dir.as_deref(), server.store.as_deref()).await?;
            return Ok((started.target()?, Some(started)));
        };
        let own = match self.work {
            WorkArg::Empty => Some("--work empty uses a private server"),
            WorkArg::Restart => Some("--work restart kills its server, so it uses a private one"),
            WorkArg::Transact => {
                Some("--work transact pays without a rail, so it uses a private server")
            }
            WorkArg::IdleSockets => {
                Some("--work idle-sockets restarts its server, so it uses a private one")
            }
            WorkArg::Mesh => Some("--work mesh creates a mesh, so it uses a private server"),
            WorkArg::Cycle
            | WorkArg::Pairs
            | WorkArg::Publish
            | WorkArg::Drain
            | WorkArg::Next
            | WorkArg::Batch
            | WorkArg::Handoff
            | WorkArg::Relay
            | WorkArg::RelaySocket => None,
        };
        if let Some(why) = own {
            return Err(Failure::usage(format!("{why}; it cannot be used with --url")).into());
        }
        let key = given(server.key.as_ref(), server.key_file.as_deref())?;
        let key = key.ok_or_else(|| {
            Failure::usage("--url needs an API key").hint("give --key-file, or set CONSIGN_KEY")
        })?;
        let admin_token = given(
            server.admin_token.as_ref(),
            server.admin_token_file.as_deref(),
        )?;
        let target = BenchTarget {
            server: Address::parse(url)?,
            key,
            admin_token,
            pid: server.pid,
            dir: None,
        };
        out::note(&format!(
            "loading {url}, in the namespace {NAMESPACE}; open intents there are deleted after a day"
        ));
        Ok((target, None))
    }

    fn check_against(&self, target: BenchTarget) -> anyhow::Result<BenchPlan> {
        let handoff = self.work == WorkArg::Handoff;
        let plan = BenchPlan {
            target,
            work: self.work.into(),
            clients: self.clients.unwrap_or(CLIENTS),
            threads: self.threads.unwrap_or(1),
            round: Duration::from_secs_f64(self.seconds.unwrap_or(SECONDS)),
            rounds: self.rounds,
            warmup: Duration::from_secs_f64(self.warmup.unwrap_or(WARMUP_SECONDS)),
            rate: self.rate.or_else(|| handoff.then_some(HANDOFF_RATE)),
            payload_bytes: self.payload_bytes,
            backlog: self.backlog,
            backlog_mix: self.backlog_mix,
            finished: self.finished,
            signed: self.signed,
            nonces: self.nonces,
            batch: self.batch.unwrap_or(BATCH_MAX),
            wait: Duration::from_secs_f64(self.wait.unwrap_or(WAIT_SECONDS)),
            orders: Vec::new().into(),
            relay: Arc::default(),
        };
        plan.check().map_err(Failure::usage)?;
        Ok(plan)
    }

    fn show<R: Serialize>(&self, report: &R, table: fn(&R) -> String) -> anyhow::Result<()> {
        if let Some(path) = &self.out {
            write(path, &serde_json::to_string_pretty(report)?)?;
        }
        if self.output.json {
            out::json(report)
        } else {
            out::data(&table(report))
        }
    }
}

/// Carries a plan out on a server that runs.
async fn load(plan: BenchPlan, tell: &mut dyn FnMut(&str)) -> anyhow::Result<BenchReport> {
    let report = consign_bench::run(plan, tell).await;
    report.map_err(|error| match error {
        Error::Connect { .. } => {
            let message = format!("{:#}", anyhow::Error::new(error));
            Failure::new(Exit::Unreachable, message).into()
        }
        Error::Load { .. }
        | Error::Restart(_)
        | Error::Thread(_)
        | Error::Panicked
        | Error::NoMemory
        | Error::Daemon(_)
        | Error::Entropy(_) => anyhow::Error::new(error),
    })
}

fn verdict(report: &BenchReport) -> anyhow::Result<Exit> {
    let errors: u64 = report.errors.iter().map(|error| error.count).sum();
    if errors > 0 {
        let message = format!("{errors} requests failed; the rates count only successful requests");
        return Err(Failure::failed(message).into());
    }
    if !report.clean {
        return Err(
            Failure::failed("no request finished during the measurement")
                .hint("use a longer --seconds, a shorter --warmup, or a larger --backlog for drain")
                .into(),
        );
    }
    Ok(Exit::Done)
}

fn write(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A day is more than enough, and small enough for additions.
fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=86_400.0).contains(&number) {
        return Ok(number);
    }
    Err("it must be 0 to 86400 seconds".to_owned())
}
