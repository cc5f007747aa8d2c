//! What a run is asked to do.
//!
//! Invariant: a plan that [`BenchPlan::check`] accepts can be carried out; what the server limits
//! (batches, payloads) is limited here as well, so that a run does not begin and then fail.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consign_client::{Address, Key};
use serde::Serialize;

/// Everything a run publishes lies here, or in namespaces that begin with it.
pub const NAMESPACE: &str = "bench";
/// The server refuses longer lists.
pub const BATCH_MAX: usize = 100;
/// The server refuses larger payloads.
pub const PAYLOAD_BYTES_MAX: usize = 7168;
/// Below this there is no room for the member names that a payload has.
pub const PAYLOAD_BYTES_MIN: usize = 48;

/// The server refuses longer waits.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A site takes an intent until five minutes after it was signed, and all are signed before the first is sent.
const TRANSACT_MAX: Duration = Duration::from_mins(4);

/// What the clients do, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Each client publishes, claims and fulfils.
    Cycle,
    /// Half of the clients publish, the others claim and fulfil.
    Pairs,
    /// Publish alone.
    Publish,
    /// Claim and fulfil what was loaded before.
    Drain,
    /// Publish, then fulfil what is held and claim the next in one request.
    Next,
    /// Whole cycles with many intents per request.
    Batch,
    /// Three posts that the server answers without any work.
    Empty,
    /// One publisher at a fixed rate, workers that wait.
    Handoff,
    /// Kill the loaded server, start it, and claim; see [`crate::restarts`].
    Restart,
    /// Each client authorizes an agent's intent and executes it.
    Transact,
}

impl Workload {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::Pairs => "pairs",
            Self::Publish => "publish",
            Self::Drain => "drain",
            Self::Next => "next",
            Self::Batch => "batch",
            Self::Empty => "empty",
            Self::Handoff => "handoff",
            Self::Restart => "restart",
            Self::Transact => "transact",
        }
    }
}

/// One transaction to be asked for, signed before the clock starts.
#[derive(Debug, Clone)]
pub struct TransactionOrder {
    /// The `Idempotency-Key` of both requests.
    pub key: String,
    /// The signed intent, which is created and authorized by one request.
    pub authorize: String,
    pub execute: String,
}

/// Who is loaded.
#[derive(Debug, Clone)]
pub struct BenchTarget {
    pub server: Address,
    pub key: Key,
    /// Opens `/metrics`, which tells commits.
    pub admin_token: Option<Key>,
    /// The server's process, if it runs on this machine and is known.
    pub pid: Option<u32>,
    /// Its data directory, if it is known.
    pub dir: Option<PathBuf>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    pub target: BenchTarget,
    pub work: Workload,
    pub clients: usize,
    pub threads: usize,
    /// Length of one measured round.
    pub round: Duration,
    pub rounds: usize,
    pub warmup: Duration,
    /// Starts per second over all clients; without it each client starts again when it is done.
    pub rate: Option<f64>,
    pub payload_bytes: usize,
    pub backlog: u64,
    pub backlog_mix: bool,
    pub finished: u64,
    pub signed: bool,
    /// Nonces that are used up before anything is measured.
    pub nonces: u64,
    pub batch: usize,
    /// How long a claim waits for work.
    pub wait: Duration,
    /// What `transact` asks for, each once.
    pub orders: Arc<[TransactionOrder]>,
}

impl BenchPlan {
    /// Warm-up and all rounds.
    pub fn length(&self) -> Duration {
        let rounds = u32::try_from(self.rounds).unwrap_or(u32::MAX);
        self.round
            .saturating_mul(rounds)
            .saturating_add(self.warmup)
    }

    /// Why the plan cannot be carried out, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |why: &str| Err(why.to_owned());
        if self.target.server.tls {
            return refuse("TLS is not spoken here; load the plain port behind it");
        }
        if !(PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes) {
            return Err(format!(
                "a payload has {PAYLOAD_BYTES_MIN} to {PAYLOAD_BYTES_MAX} bytes"
            ));
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(format!("a batch has 1 to {BATCH_MAX} items"));
        }
        if self.clients == 0 || self.threads == 0 || self.rounds == 0 || self.round.is_zero() {
            return refuse("clients, threads, rounds and seconds must be more than 0");
        }
        if self
            .rate
            .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
        {
            return refuse("the rate must be more than 0");
        }
        if self.wait > WAIT_MAX {
            return Err(format!("a claim waits at most {WAIT_MAX:?}"));
        }
        if self.nonces > 0 && !self.signed {
            return refuse("only signed requests have nonces");
        }
        let rounds = u64::try_from(self.rounds).unwrap_or(u64::MAX);
        match self.work {
            Workload::Pairs if self.clients < 2 => refuse("pairs needs at least two clients"),
            Workload::Handoff if self.rate.is_none() => refuse("handoff needs a rate"),
            Workload::Drain if self.backlog == 0 => refuse("drain needs a backlog"),
            Workload::Drain if self.rate.is_some() => {
                refuse("drain goes as fast as it can, without a rate")
            }
            Workload::Drain if self.backlog_mix => {
                refuse("nothing of a mixed backlog can be drained, it is all for others")
            }
            Workload::Empty if self.backlog > 0 || self.finished > 0 => {
                refuse("the empty server keeps no intents")
            }
            Workload::Empty if self.signed => refuse("the empty server checks no signatures"),
            Workload::Restart if self.backlog < rounds => {
                refuse("restart needs a backlog of at least one intent for each round")
            }
            Workload::Restart if self.backlog_mix => {
                refuse("nothing of a mixed backlog can be claimed, it is all for others")
            }
            Workload::Transact if self.signed => {
                refuse("agents sign their intents, and nothing else is signed here")
            }
            Workload::Transact if self.length() > TRANSACT_MAX => Err(format!(
                "transact runs for at most {TRANSACT_MAX:?}, because intents are signed ahead and grow old"
            )),
            Workload::Cycle
            | Workload::Pairs
            | Workload::Publish
            | Workload::Drain
            | Workload::Next
            | Workload::Batch
            | Workload::Empty
            | Workload::Handoff
            | Workload::Restart
            | Workload::Transact => Ok(()),
        }
    }
}
