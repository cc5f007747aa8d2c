//! The plan of a run.
//!
//! Invariant: a plan that [`BenchPlan::check`] accepts can be executed; the server's limits (batches,
//! payloads) are checked here too, so that a run does not fail after it has begun.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consign_client::{Address, SecretKey};
use serde::Serialize;

/// Everything a run publishes is in this namespace, or in namespaces with this prefix.
pub const NAMESPACE: &str = "bench";
/// The server refuses longer lists.
pub const BATCH_MAX: usize = 100;
/// The server refuses larger payloads.
pub const PAYLOAD_BYTES_MAX: usize = 7168;
/// The minimum for the member names of a payload.
pub const PAYLOAD_BYTES_MIN: usize = 48;

/// The server refuses longer waits.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A server accepts an intent until five minutes after it was signed, and all are signed before the first is
/// sent.
const SIGNED_MAX: Duration = Duration::from_mins(4);

/// The workload that clients repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each client publishes, claims and fulfils.
    Cycle,
    /// Half of the clients publish, the others claim and fulfil.
    Pairs,
    /// Publish alone.
    Publish,
    /// Claim and fulfil the loaded backlog.
    Drain,
    /// Publish, then fulfil the held intent and claim the next in one request.
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
    /// Each client sends intents of Beam over HTTP to recipients that answer at once.
    Relay,
    /// The same over sockets.
    RelaySocket,
    /// Messages to a daemon of the mesh; see [`crate::send_messages`].
    Mesh,
    /// Sockets that do nothing; see [`crate::idle_sockets`].
    IdleSockets,
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
            Self::Relay => "relay",
            Self::RelaySocket => "relay-socket",
            Self::Mesh => "mesh",
            Self::IdleSockets => "idle-sockets",
        }
    }
}

/// One transaction, signed before the measurement begins.
#[derive(Debug, Clone)]
pub struct TransactionOrder {
    /// The `Idempotency-Key` of both requests.
    pub key: String,
    /// The signed intent, which one request creates and authorizes.
    pub authorize: String,
    pub execute: String,
}

/// The intents of `relay`, signed before the measurement begins. The agents are registered, and the recipients accept
/// the intents.
#[derive(Debug, Clone, Default)]
pub struct RelayOrders {
    /// One for each client.
    pub senders: Vec<SenderOrders>,
    /// The ids of the agents that answer.
    pub recipients: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct SenderOrders {
    pub beam_id: String,
    /// Each is sent once.
    pub frames: Vec<String>,
}

/// The server under load.
#[derive(Debug, Clone)]
pub struct BenchTarget {
    pub server: Address,
    pub key: SecretKey,
    /// The token for `/metrics`, which reports commits.
    pub admin_token: Option<SecretKey>,
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
    /// Starts per second over all clients; without it, each client starts again when it is done.
    pub rate: Option<f64>,
    pub payload_bytes: usize,
    pub backlog: u64,
    pub backlog_mix: bool,
    pub finished: u64,
    pub signed: bool,
    /// Nonces that are used before the measurement.
    pub nonces: u64,
    pub batch: usize,
    /// How long a claim waits for work.
    pub wait: Duration,
    /// The transactions of `transact`, each used once.
    pub orders: Arc<[TransactionOrder]>,
    /// The intents of `relay`.
    pub relay: Arc<RelayOrders>,
}

impl BenchPlan {
    /// Warm-up and all rounds.
    pub fn length(&self) -> Duration {
        let rounds = u32::try_from(self.rounds).unwrap_or(u32::MAX);
        self.round
            .saturating_mul(rounds)
            .saturating_add(self.warmup)
    }

    /// Why the plan cannot be executed, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |why: &str| Err(why.to_owned());
        if self.target.server.tls {
            return refuse("TLS is not supported; use the plain port behind it");
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
                refuse("drain runs as fast as possible, without a rate")
            }
            Workload::Drain if self.backlog_mix => {
                refuse("a mixed backlog cannot be drained, because it is for other workers")
            }
            Workload::Empty if self.backlog > 0 || self.finished > 0 => {
                refuse("the empty server stores no intents")
            }
            Workload::Empty if self.signed => refuse("the empty server checks no signatures"),
            Workload::Restart if self.backlog < rounds => {
                refuse("restart needs a backlog of at least one intent for each round")
            }
            Workload::Restart if self.backlog_mix => {
                refuse("a mixed backlog cannot be claimed, because it is for other workers")
            }
            Workload::IdleSockets if self.backlog > 0 || self.finished > 0 || self.signed => {
                refuse("idle-sockets publishes nothing")
            }
            Workload::Mesh if self.finished > 0 || self.signed || self.backlog_mix => {
                refuse("mesh sends through a daemon, without other intents")
            }
            Workload::Mesh if self.rounds > 1 => refuse("mesh has one round"),
            Workload::IdleSockets if self.rounds > 1 => refuse("idle-sockets has one round"),
            Workload::Transact if self.signed => {
                refuse("agents sign their intents; requests are not signed in this workload")
            }
            Workload::Relay | Workload::RelaySocket if self.signed => {
                refuse("senders sign their intents; requests are not signed in this workload")
            }
            Workload::Transact | Workload::Relay | Workload::RelaySocket
                if self.length() > SIGNED_MAX =>
            {
                let name = self.work.name();
                Err(format!(
                    "{name} runs for at most {SIGNED_MAX:?}, because intents are signed in advance and expire"
                ))
            }
            Workload::Cycle
            | Workload::Pairs
            | Workload::Publish
            | Workload::Drain
            | Workload::Next
            | Workload::Batch
            | Workload::Empty
            | Workload::Handoff
            | Workload::Restart
            | Workload::Transact
            | Workload::Relay
            | Workload::RelaySocket
            | Workload::Mesh
            | Workload::IdleSockets => Ok(()),
        }
    }
}
