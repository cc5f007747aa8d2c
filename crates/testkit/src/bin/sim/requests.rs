//! Actions of clients, and pending requests. A request is a task; dropping it cuts its connection.

use std::time::Duration;

use consign_engine::{Engine, Error, Operator, StoreError};
use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, Extend, NewIntent, OnceGuard, Settle, Settlement,
};
use consign_kernel::ids::{DAY_US, FactSeq, IntentId, Micros, SECOND_US, Token};
use consign_kernel::intent::Ties;
use consign_kernel::lane::Probe;
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// All workers share one key, like the replicas of one service: only tokens distinguish them.
const HOLDER: &str = "main";

/// The shortest requested lease.
pub(crate) const LEASE_MIN_US: i64 = 2 * SECOND_US;

#[derive(Clone, Debug)]
pub(crate) enum SimAction {
    Publish(PublishBatch),
    Claim {
        claim: Claim,
        wait: Duration,
    },
    Extend {
        presented: PresentedToken,
        lease_us: i64,
    },
    Complete(PresentedToken),
    Fail(PresentedToken),
    Cancel(IntentId),
    Requeue(IntentId),
    Receipt {
        id: IntentId,
        /// Known when it was sent: the fact that settled it.
        settled: Option<FactSeq>,
        /// Reads take no time here, but in reality commits may happen between two of them.
        between_reads: Duration,
    },
    Clean,
}

/// The intents of one request, all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct PublishBatch {
    pub(crate) number: usize,
    pub(crate) items: Vec<PublishSpec>,
}

/// A new intent; its key is also its payload, which identifies it in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct PublishSpec {
    pub(crate) key: usize,
    /// Without a guard, the same key may be admitted again.
    pub(crate) guarded: bool,
    pub(crate) goal: &'static str,
    pub(crate) public: bool,
    pub(crate) delay_us: i64,
    pub(crate) ttl_us: i64,
    pub(crate) attempts_max: u32,
}

/// The token that a worker sends, which may be an old one or a wrong one.
#[derive(Clone, Debug)]
pub(crate) struct PresentedToken {
    /// The index among all leases of this simulation.
    pub(crate) lease: usize,
    pub(crate) id: IntentId,
    pub(crate) token: Token,
    /// Known when it was sent: this token is wrong, or the intent was granted again since.
    pub(crate) stale: bool,
}

/// The outcome of a request for its sender.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    Yes(Answer),
    /// The receipt, if the intent exists.
    Receipt(Option<String>),
    /// The request was certainly not executed.
    No(Error),
    /// It is unknown whether the request was executed.
    Lost,
}

#[derive(Debug)]
pub(crate) struct SimRequest {
    pub(crate) number: u64,
    pub(crate) action: SimAction,
    pub(crate) sent: Micros,
    pub(crate) since: Instant,
    pub(crate) task: JoinHandle<Result<EngineReply, Error>>,
}

/// The result of the engine.
#[derive(Debug)]
pub(crate) enum EngineReply {
    Answer(Answer),
    Receipt(Option<String>),
}

impl SimRequest {
    pub(crate) fn send(number: u64, action: SimAction, engine: &Engine) -> Self {
        Self {
            number,
            sent: engine.now(),
            since: Instant::now(),
            task: tokio::spawn(carry_out(engine.clone(), action.clone())),
            action,
        }
    }

    /// The lanes it waits for, if it is a waiting claim.
    pub(crate) fn waits_for(&self) -> Option<Vec<Probe>> {
        if let SimAction::Claim { claim, wait } = &self.action
            && !wait.is_zero()
        {
            return Some(claim.probes());
        }
        None
    }

    /// The intent whose receipt it requests.
    pub(crate) fn receipt_of(&self) -> Option<IntentId> {
        if let SimAction::Receipt { id, .. } = &self.action {
            return Some(*id);
        }
        None
    }

    pub(crate) async fn outcome(task: JoinHandle<Result<EngineReply, Error>>) -> RequestOutcome {
        match task.await {
            Ok(Ok(EngineReply::Answer(answer))) => RequestOutcome::Yes(answer),
            Ok(Ok(EngineReply::Receipt(document))) => RequestOutcome::Receipt(document),
            Ok(Err(Error::Store(StoreError::Closed | StoreError::Lost))) | Err(_) => {
                RequestOutcome::Lost
            }
            Ok(Err(error)) => RequestOutcome::No(error),
        }
    }
}

async fn carry_out(engine: Engine, action: SimAction) -> Result<EngineReply, Error> {
    let operator = Operator::vouched();
    let command = match action {
        SimAction::Claim { claim, wait } => {
            let claimed = engine.claim(None, claim, wait).await?;
            return Ok(EngineReply::Answer(Answer::Claimed(claimed)));
        }
        SimAction::Cancel(id) => {
            engine.cancel(operator, Face::Intent, id, "stop").await?;
            return Ok(EngineReply::Answer(Answer::Operated));
        }
        SimAction::Requeue(id) => {
            engine.requeue(operator, Face::Intent, id, "again").await?;
            return Ok(EngineReply::Answer(Answer::Operated));
        }
        SimAction::Clean => {
            engine.cleanup(operator, Face::Intent).await?;
            return Ok(EngineReply::Answer(Answer::Operated));
        }
        SimAction::Receipt {
            id, between_reads, ..
        } => {
            return receipt(&engine, id, between_reads)
                .await
                .map(EngineReply::Receipt);
        }
        SimAction::Publish(batch) => Command::Admit(Admit {
            items: batch.items.iter().map(PublishSpec::intent).collect(),
            cap: None,
        }),
        SimAction::Extend {
            presented,
            lease_us,
        } => Command::Extend(Extend {
            detail: None,
            id: presented.id,
            holder: HOLDER.to_owned(),
            token: presented.token,
            lease_us,
        }),
        SimAction::Complete(presented) => settle(&presented, Settlement::Complete { result: None }),
        SimAction::Fail(presented) => {
            let error = "no luck".to_owned();
            settle(&presented, Settlement::Fail { error })
        }
    };
    engine.apply(None, command).await.map(EngineReply::Answer)
}

/// Reads a receipt in the same way as the face.
async fn receipt(engine: &Engine, id: IntentId, pause: Duration) -> Result<Option<String>, Error> {
    let Some(intent) = engine.observe(id).await? else {
        return Ok(None);
    };
    tokio::time::sleep(pause).await;
    engine.receipt(&intent).await.map(Some)
}

fn settle(presented: &PresentedToken, how: Settlement) -> Command {
    Command::Settle(Settle {
        detail: None,
        id: presented.id,
        holder: HOLDER.to_owned(),
        token: presented.token,
        how,
    })
}

impl PublishSpec {
    pub(crate) fn payload(&self) -> String {
        let kind = if self.guarded { "once" } else { "free" };
        format!("{{\"{kind}\":{}}}", self.key)
    }

    fn intent(&self) -> NewIntent {
        let guard = || OnceGuard {
            key: once::OnceKey {
                scope: once::Scope::IntentIdempotency,
                owner: HOLDER.to_owned(),
                key: self.key.to_string(),
            },
            fingerprint: [1; 32],
            // Longer than any simulation, so that a key never expires.
            lifetime_us: 10_000 * DAY_US,
        };
        NewIntent {
            profile: ProfileId::Intent,
            namespace: "default".to_owned(),
            goal: self.goal.to_owned(),
            owner: if self.public { "other" } else { HOLDER }.to_owned(),
            public: self.public,
            target: None,
            capability: None,
            priority: 100,
            payload: self.payload(),
            ties: Ties::default(),
            unless: None,
            traceparent: None,
            delay_us: self.delay_us,
            ttl_us: self.ttl_us,
            attempts_max: self.attempts_max,
            backoff_us: 2 * SECOND_US,
            once: self.guarded.then(guard),
        }
    }
}

pub(crate) fn claim(goal: Option<&str>, max: u32, lease_us: i64) -> Claim {
    Claim {
        face: Face::Intent,
        namespace: "default".to_owned(),
        goal: goal.map(str::to_owned),
        holder: HOLDER.to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max,
        lease_us,
        grant: None,
    }
}
