//! The rows of the outbox as a queue: each is added once, claimed in the order of acceptance, and settled by its holder.
//!
//! Invariant: an id has one row, found or made in one commit; leases, pauses and attempts are the ledger's. It works on any
//! ledger; the file of a daemon and its table are the business of the outbox ledger.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, Hold, NewIntent, OnceGuard, Recover, Settle,
    Settlement, Sweep, Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Ties};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use consign_store::sqlite::{OUTBOX_PUBLISH, OUTBOX_SEND};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::outbox_payload::OutboxPayload;
use crate::fingerprint::RequestFingerprint;
use crate::id::BrokerMessageId;
use crate::limits::{ACK_TIMEOUT_MS, BACKOFF_MIN_MS, DRAIN_POLL_MS};

/// How long a claim waits before the loop looks at everything else.
pub(super) const CLAIM_WAIT: Duration = Duration::from_micros(30 * SECOND_US as u64);

/// Leases belong to this worker; the start of the process follows.
const NODE: &str = "daemon";
/// Intents are claimed when the ledger reports one; this is for a report that was lost.
const INTENT_POLL_MS: u64 = 10 * DRAIN_POLL_MS;

/// A row is settled by its acknowledgement or its timeout; the lease only has to be longer than both.
const LEASE_US: i64 = 2 * ACK_TIMEOUT_MS.cast_signed() * 1_000;

/// The ledger ends no row by its age: how old a message may be is known only after the negotiation with a broker.
const LIFE_US: i64 = 3_650 * DAY_US;

/// How long a claim lets rows that are being added go first. Callers that send without a pause so get most of the machine, and
/// a batch is still delivered each time.
const ADDS_GO_FIRST: Duration = Duration::from_millis(20);

/// How many rows one request for recovery or removal examines.
const PIECE: u32 = 500;

#[derive(Debug, Clone)]
pub(super) struct OutboxQueue {
    pub(super) engine: Engine,
    mesh: String,
    /// The name under which this start of the daemon holds leases.
    holder: String,
    start: String,
    adds: AddsUnderWay,
}

/// How many rows are being added. Programs wait for that and nobody waits for a delivery, so deliveries let them go first.
#[derive(Debug, Clone, Default)]
struct AddsUnderWay(Arc<watch::Sender<usize>>);

impl AddsUnderWay {
    fn begin(&self) -> AddUnderWay<'_> {
        self.0.send_modify(|count| *count += 1);
        AddUnderWay(self)
    }

    /// Waits until nothing is added, or for the time that deliveries wait at most.
    async fn let_them_go_first(&self) {
        let mut count = self.0.subscribe();
        // Both ends of the wait are good.
        let _ = timeout(ADDS_GO_FIRST, count.wait_for(|count| *count == 0)).await;
    }
}

struct AddUnderWay<'a>(&'a AddsUnderWay);

impl Drop for AddUnderWay<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// What a row is for, and so who claims it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// A message for the broker.
    Message,
    /// An intent for its server.
    Intent,
}

impl RowKind {
    const fn goal(self) -> &'static str {
        match self {
            Self::Message => OUTBOX_SEND,
            Self::Intent => OUTBOX_PUBLISH,
        }
    }

    const fn poll(self) -> Duration {
        Duration::from_millis(match self {
            Self::Message => DRAIN_POLL_MS,
            Self::Intent => INTENT_POLL_MS,
        })
    }
}

/// A row that was claimed to be sent.
#[derive(Debug, Clone)]
pub(super) struct ClaimedRow {
    pub(super) id: IntentId,
    token: Token,
    pub(super) attempts: u32,
    /// Unix milliseconds.
    pub(super) enqueued_at_ms: i64,
    /// The id that the broker gave it at an earlier attempt.
    pub(super) known_as: Option<String>,
    /// `None` if another program left something that cannot be read.
    pub(super) payload: Option<OutboxPayload>,
}

impl ClaimedRow {
    /// The id that the table shows.
    pub(super) fn table_id(&self) -> String {
        hyphenated(self.id)
    }
}

/// What a request to add a row found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuedRow {
    New,
    /// The id has a row, made by the same request.
    Same,
    /// The id has a row, made by another request.
    Different,
}

impl OutboxQueue {
    /// `start` names this start of the daemon and no other one.
    pub(super) fn new(engine: Engine, mesh: &str, start: String) -> Self {
        Self {
            engine,
            mesh: mesh.to_owned(),
            holder: Recover::holder(NODE, &start),
            start,
            adds: AddsUnderWay::default(),
        }
    }

    /// Rows that were in flight when an earlier process ended are due again after the shortest pause, with one attempt more.
    pub(super) async fn recover_in_flight(&self) -> Result<u64, Error> {
        let recover = || {
            Command::Recover(Recover {
                face: Face::Mesh,
                node: NODE.to_owned(),
                start: self.start.clone(),
                limit: PIECE,
            })
        };
        let mut due: Vec<IntentId> = Vec::new();
        // Rows that another program set to in flight have a lease that has ended; the sweep queues them again.
        let mut after = Seq(0);
        loop {
            let page = self
                .engine
                .active_rows(ProfileId::MeshOutbox, State::Dispatched, after, PIECE)
                .await?;
            let Some(last) = page.last() else {
                break;
            };
            after = last.seq;
            due.extend(page.iter().map(|row| row.id));
        }
        loop {
            let answer = self.engine.apply(None, recover()).await?;
            if !matches!(answer, Answer::Recovered(rows) if !rows.is_empty()) {
                break;
            }
        }
        loop {
            let sweep = Command::Sweep(Sweep { limit: PIECE });
            let answer = self.engine.apply(None, sweep).await?;
            if !matches!(answer, Answer::Swept { more: true, .. }) {
                break;
            }
        }
        for id in &due {
            self.count_lost_attempt(*id).await?;
        }
        Ok(due.len() as u64)
    }

    async fn count_lost_attempt(&self, id: IntentId) -> Result<(), Error> {
        let take = Command::Take(Take {
            id,
            face: Face::Mesh,
            hold: Hold {
                holder: self.holder.clone(),
                lease_us: LEASE_US,
            },
            detail: Some("recovered".to_owned()),
        });
        let Answer::Claimed(rows) = self.engine.apply(None, take).await? else {
            return Ok(());
        };
        for row in rows.iter().filter_map(claimed) {
            let later = Settlement::RetryLater {
                after_us: BACKOFF_MIN_MS.cast_signed() * 1_000,
                error: Some("the daemon ended while the message was in flight".to_owned()),
            };
            self.settle(&row, later).await?;
        }
        Ok(())
    }

    /// Adds the row, unless its id has one. `waiting_max` counts rows that are pending or in flight, this one included.
    pub(super) async fn add(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
        waiting_max: u64,
    ) -> Result<QueuedRow, Error> {
        let _under_way = self.adds.begin();
        let admit = Admit {
            items: vec![self.item(payload, fingerprint, None)],
            cap: Some(waiting_max),
        };
        match self.engine.apply(None, Command::Admit(admit)).await {
            Ok(Answer::Admitted(admitted)) if !admitted.iter().any(|one| one.replayed) => {
                Ok(QueuedRow::New)
            }
            Ok(_) => Ok(QueuedRow::Same),
            Err(Error::Refused(Refusal::OnceConflict { .. })) => Ok(QueuedRow::Different),
            Err(error) => Err(error),
        }
    }

    /// A row, in the place of `parent` if there is one.
    pub(super) fn item(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
        parent: Option<IntentId>,
    ) -> NewIntent {
        NewIntent {
            profile: ProfileId::MeshOutbox,
            namespace: self.mesh.clone(),
            goal: payload.kind().goal().to_owned(),
            owner: self.mesh.clone(),
            public: false,
            target: None,
            capability: None,
            priority: 0,
            payload: serde_json::to_string(payload).expect("texts and numbers are JSON"),
            traceparent: None,
            delay_us: 0,
            ttl_us: LIFE_US,
            attempts_max: u32::MAX,
            backoff_us: 0,
            once: Some(OnceGuard {
                key: self.once_key(&payload.client_message_id),
                fingerprint: fingerprint.to_bytes(),
                lifetime_us: i64::MAX,
            }),
            ties: Ties {
                parent,
                ..Ties::default()
            },
            unless: None,
        }
    }

    pub(super) fn once_key(&self, client_message_id: &str) -> OnceKey {
        OnceKey {
            scope: Scope::MeshOutbox,
            owner: self.mesh.clone(),
            key: client_message_id.to_owned(),
        }
    }

    /// Claims due rows of a kind in the order of acceptance, and waits for one until `leave` resolves. Rows that are being added
    /// go first.
    pub(super) async fn claim(
        &self,
        kind: RowKind,
        rows_max: usize,
        wait: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<Vec<ClaimedRow>, Error> {
        self.adds.let_them_go_first().await;
        let claim = Claim {
            face: Face::Mesh,
            namespace: self.mesh.clone(),
            goal: Some(kind.goal().to_owned()),
            holder: self.holder.clone(),
            audience: Audience::Publisher(self.mesh.clone()),
            worker_id: None,
            capabilities: Vec::new(),
            max: u32::try_from(rows_max).unwrap_or(u32::MAX),
            lease_us: LEASE_US,
            grant: None,
        };
        let rows = self
            .engine
            .claim_polling(None, claim, wait, kind.poll(), leave)
            .await?;
        Ok(rows.iter().filter_map(claimed).collect())
    }

    /// The broker has it.
    pub(super) async fn complete(
        &self,
        row: &ClaimedRow,
        broker_message_id: &str,
        history_id: Option<&str>,
    ) -> Result<(), Error> {
        let body = json!({"broker_message_id": broker_message_id, "history_id": history_id});
        let result = Some(Outcome {
            kind: ResultKind::Json,
            body: body.to_string(),
        });
        self.settle(row, Settlement::Complete { result }).await
    }

    /// It is sent again after the pause that its attempts give.
    pub(super) async fn retry(&self, row: &ClaimedRow, error: &str) -> Result<(), Error> {
        let error = error.to_owned();
        self.settle(row, Settlement::Fail { error }).await
    }

    /// It is never sent again.
    pub(super) async fn kill(&self, row: &ClaimedRow, error: &str) -> Result<(), Error> {
        let error = error.to_owned();
        self.settle(row, Settlement::Kill { error }).await
    }

    /// A row that lost its lease was settled otherwise, by an operator for example, and that stays.
    async fn settle(&self, row: &ClaimedRow, how: Settlement) -> Result<(), Error> {
        let settle = Command::Settle(Settle {
            id: row.id,
            holder: self.holder.clone(),
            token: row.token,
            how,
            detail: None,
        });
        match self.engine.apply(None, settle).await {
            Ok(_) | Err(Error::Refused(Refusal::LeaseLost)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Milliseconds since 1970, of the clock that `enqueued_at` has.
    pub(super) fn now_ms(&self) -> i64 {
        self.engine.now().0 / 1_000
    }
}

fn claimed(row: &Intent) -> Option<ClaimedRow> {
    Some(ClaimedRow {
        id: row.id,
        token: row.token?,
        attempts: row.attempts,
        enqueued_at_ms: row.created_at.0 / 1_000,
        known_as: row.result.as_ref().and_then(|result| {
            let result: Value = serde_json::from_str(&result.body).ok()?;
            Some(result.get("broker_message_id")?.as_str()?.to_owned())
        }),
        payload: payload(row),
    })
}

pub(super) fn payload(row: &Intent) -> Option<OutboxPayload> {
    serde_json::from_str(&row.payload).ok()
}

/// The form that the table shows.
pub(super) fn hyphenated(id: IntentId) -> String {
    BrokerMessageId::from_bytes(id.0).to_string()
}

pub(super) fn parse_id(text: &str) -> Option<IntentId> {
    let id = BrokerMessageId::parse(text).ok()?;
    Some(IntentId(id.to_bytes()))
}
