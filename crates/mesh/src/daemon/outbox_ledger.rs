//! The outbox: rows of the profile `mesh_outbox` in a ledger of the daemon's own.
//!
//! Invariant: an id has one row, found or made in one commit; leases, pauses and attempts are the ledger's. A requeue retires
//! the old row and makes the new one in one commit, and no request can use the new id in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{
    Engine, EngineClock, Error, Options as EngineOptions, SealKey, StoreError, Timekeeper,
    UnitOfWork,
};
use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, Hold, NewIntent, OnceGuard, Operate, Recover, Settle,
    Settlement, Sweep, Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Ties};
use consign_kernel::limits::RETENTION_US;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::receipt::Signer;
use consign_kernel::state::State;
use consign_store::TypedReads as _;
use consign_store::sqlite::{
    Options as StoreOptions, OutboxTableRow, OutboxTally, QUEUE_REQUESTS_MAX, Sqlite,
};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use super::outbox_payload::OutboxPayload;
use super::random;
use crate::fingerprint::RequestFingerprint;
use crate::limits::{ACK_TIMEOUT_MS, BACKOFF_MIN_MS, DRAIN_POLL_MS};
use crate::outbox::{OutboxRow, OutboxStatus};

/// Leases belong to this worker; the start of the process follows.
const NODE: &str = "daemon";
const GOAL: &str = "send";

/// A row is settled by its acknowledgement or its timeout; the lease only has to be longer than both.
const LEASE_US: i64 = 2 * ACK_TIMEOUT_MS.cast_signed() * 1_000;

/// The ledger ends no row by its age: how old a message may be is known only after the negotiation with a broker.
const LIFE_US: i64 = 3_650 * DAY_US;

/// How many rows one request for recovery or removal examines.
const PIECE: u32 = 500;

#[derive(Debug, Clone)]
pub(super) struct OutboxLedger {
    engine: Engine,
    store: Arc<Sqlite>,
    clock: Arc<EngineClock>,
    mesh: String,
    /// The name under which this start of the daemon holds leases.
    holder: String,
    start: String,
    /// Requests that add a row share it; a requeue has it alone.
    ids: Arc<RwLock<()>>,
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

/// What a request to send found or made.
#[derive(Debug)]
pub(super) enum AcceptedRow {
    New,
    Known(OutboxRow),
}

/// Why a row could not be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutboxError {
    #[error("the queue is full")]
    QueueFull,
    #[error("the row does not allow this")]
    NotAllowed,
    #[error(transparent)]
    Ledger(#[from] Error),
}

impl From<StoreError> for OutboxError {
    fn from(error: StoreError) -> Self {
        Self::Ledger(error.into())
    }
}

impl OutboxError {
    /// Whether the disk is full, as SQLite and the system say it.
    pub(super) fn is_disk_full(&self) -> bool {
        match self {
            Self::QueueFull => true,
            Self::NotAllowed => false,
            Self::Ledger(error) => {
                let text = error.to_string();
                ["full", "No space", "File too large"]
                    .iter()
                    .any(|word| text.contains(word))
            }
        }
    }
}

impl OutboxLedger {
    /// Opens the file, or creates it; edits of other programs become a part of it.
    pub(super) fn open(path: &Path, mesh: &str) -> Result<Self, StoreError> {
        let clock = Arc::new(EngineClock::start(Sqlite::last_time(path)?));
        let store = Arc::new(Sqlite::open_outbox(StoreOptions {
            path: path.to_owned(),
            clock: clock.clone(),
            queue_max: QUEUE_REQUESTS_MAX,
        })?);
        // The ledger seals no keys, signs no receipts and knows no callers, so these are random and forgotten.
        let engine = Engine::new(EngineOptions {
            store: store.clone(),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: random::bytes(),
            seal: SealKey::new(random::bytes()),
            signer: Signer::from_seed(&random::bytes()),
            main_key: u128::from_le_bytes(random::bytes()).to_string(),
            cleanup_interval: Duration::from_hours(24),
        });
        let start = format!("{:032x}", u128::from_le_bytes(random::bytes()));
        Ok(Self {
            engine,
            store,
            clock,
            mesh: mesh.to_owned(),
            holder: Recover::holder(NODE, &start),
            start,
            ids: Arc::default(),
        })
    }

    /// Ends pauses and lost leases in time, until `shutdown` resolves.
    pub(super) async fn keep_time(&self, shutdown: impl Future<Output = ()> + Send) {
        let clock = Arc::clone(&self.clock);
        let timekeeper = Timekeeper::new(self.engine.clone());
        timekeeper.run(shutdown, || clock.follow()).await;
    }

    pub(super) fn close(&self) {
        self.store.close();
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
    pub(super) async fn accept(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
        waiting_max: u64,
    ) -> Result<AcceptedRow, OutboxError> {
        let _shared = self.ids.read().await;
        let admit = Admit {
            items: vec![self.item(payload, fingerprint, None)],
            cap: Some(waiting_max),
        };
        match self.engine.apply(None, Command::Admit(admit)).await {
            Ok(Answer::Admitted(admitted)) if !admitted.iter().any(|one| one.replayed) => {
                Ok(AcceptedRow::New)
            }
            Ok(_) | Err(Error::Refused(Refusal::OnceConflict { .. })) => {
                let known = self.find(&payload.client_message_id).await?;
                Ok(AcceptedRow::Known(known.ok_or(OutboxError::NotAllowed)?))
            }
            Err(Error::Refused(Refusal::CapReached { .. })) => Err(OutboxError::QueueFull),
            Err(error) => Err(error.into()),
        }
    }

    fn item(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
        parent: Option<IntentId>,
    ) -> NewIntent {
        NewIntent {
            profile: ProfileId::MeshOutbox,
            namespace: self.mesh.clone(),
            goal: GOAL.to_owned(),
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

    fn once_key(&self, client_message_id: &str) -> OnceKey {
        OnceKey {
            scope: Scope::MeshOutbox,
            owner: self.mesh.clone(),
            key: client_message_id.to_owned(),
        }
    }

    /// The row of an id. One whose row was pruned counts as delivered: it is never sent again.
    pub(super) async fn find(
        &self,
        client_message_id: &str,
    ) -> Result<Option<OutboxRow>, OutboxError> {
        if let Some(row) = self
            .store
            .outbox_row_of(client_message_id.to_owned())
            .await?
        {
            return Ok(Some(decided(row)));
        }
        let first = self.engine.first_use(self.once_key(client_message_id));
        Ok(first.await?.map(|first| OutboxRow {
            status: OutboxStatus::Done,
            fingerprint: RequestFingerprint::from_bytes(first.fingerprint),
            broker_message_id: None,
            history_id: None,
            last_error: None,
        }))
    }

    /// Claims due rows in the order of acceptance, and waits for one until `leave` resolves.
    pub(super) async fn claim(
        &self,
        rows_max: usize,
        wait: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<Vec<ClaimedRow>, Error> {
        let claim = Claim {
            face: Face::Mesh,
            namespace: self.mesh.clone(),
            goal: None,
            holder: self.holder.clone(),
            audience: Audience::Publisher(self.mesh.clone()),
            worker_id: None,
            capabilities: Vec::new(),
            max: u32::try_from(rows_max).unwrap_or(u32::MAX),
            lease_us: LEASE_US,
            grant: None,
        };
        let poll = Duration::from_millis(DRAIN_POLL_MS);
        let rows = self
            .engine
            .claim_polling(None, claim, wait, poll, leave)
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

    pub(super) async fn list(
        &self,
        status: Option<OutboxStatus>,
        limit: u32,
    ) -> Result<Vec<OutboxTableRow>, OutboxError> {
        let status = status.map(|status| status.as_str().to_owned());
        Ok(self.store.outbox_rows(status, limit).await?)
    }

    /// The row with this id, or of the message with this id.
    pub(super) async fn named(&self, id: &str) -> Result<Vec<OutboxTableRow>, OutboxError> {
        let by_row = self.store.outbox_row(id.to_owned()).await?;
        let found = match by_row {
            Some(row) => Some(row),
            None => self.store.outbox_row_of(id.to_owned()).await?,
        };
        Ok(found.into_iter().collect())
    }

    pub(super) async fn tally(&self) -> Result<OutboxTally, OutboxError> {
        Ok(self.store.outbox_tally().await?)
    }

    /// The row with this id, and what it keeps of its message.
    pub(super) async fn row(
        &self,
        id: &str,
    ) -> Result<Option<(OutboxTableRow, OutboxPayload)>, OutboxError> {
        let (Some(intent_id), Some(row)) =
            (parse_id(id), self.store.outbox_row(id.to_owned()).await?)
        else {
            return Ok(None);
        };
        let stored = self.store.intent(intent_id).await?;
        Ok(stored
            .and_then(|row| payload(&row))
            .map(|payload| (row, payload)))
    }

    /// Retires a row and adds one that takes its place. Returns the id of the new row.
    pub(super) async fn requeue(
        &self,
        old_id: &str,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
    ) -> Result<String, OutboxError> {
        let old = parse_id(old_id).ok_or(OutboxError::NotAllowed)?;
        let _alone = self.ids.write().await;
        if self.find(&payload.client_message_id).await?.is_some() {
            return Err(OutboxError::NotAllowed);
        }
        let mut unit = UnitOfWork::default();
        unit.require(cancel(old, "requeued"));
        let admitted = unit.admit(vec![self.item(payload, fingerprint, Some(old))]);
        let mut committed = self.engine.commit(unit).await.map_err(refused)?;
        let admitted = committed.get(admitted)?;
        let new = admitted.first().map(|one| hyphenated(one.id));
        Ok(new.unwrap_or_default())
    }

    /// Retires a row for good.
    pub(super) async fn drop_row(&self, id: &str) -> Result<(), OutboxError> {
        let id = parse_id(id).ok_or(OutboxError::NotAllowed)?;
        let dropped = self.engine.apply(None, cancel(id, "dropped")).await;
        dropped.map(|_| ()).map_err(refused)
    }

    /// Removes rows that were delivered before their retention. Their ids stay used.
    pub(super) async fn prune(&self) -> Result<u64, OutboxError> {
        let before_ms = self.engine.wall().minus(RETENTION_US).0 / 1_000;
        let mut pruned = 0;
        loop {
            let rows = self.store.outbox_delivered_before(before_ms, PIECE).await?;
            let steps: Vec<Command> = rows
                .iter()
                .filter_map(|row| parse_id(&row.id))
                .map(|id| Command::Remove(operate(id, "pruned")))
                .collect();
            if steps.is_empty() {
                return Ok(pruned);
            }
            let answers = self.engine.execute(None, steps).await?;
            let removed = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
            pruned += removed;
            if removed == 0 {
                return Ok(pruned);
            }
        }
    }

    /// Milliseconds since 1970, of the clock that `enqueued_at` has.
    pub(super) fn now_ms(&self) -> i64 {
        self.engine.now().0 / 1_000
    }
}

fn decided(row: OutboxTableRow) -> OutboxRow {
    let fingerprint = row.request_fingerprint.as_slice().try_into();
    OutboxRow {
        // The table has a constraint with these words.
        status: OutboxStatus::parse(&row.status).unwrap_or(OutboxStatus::Dead),
        fingerprint: RequestFingerprint::from_bytes(fingerprint.unwrap_or([0; 32])),
        broker_message_id: row.broker_message_id,
        history_id: row.history_id,
        last_error: row.last_error,
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

fn payload(row: &Intent) -> Option<OutboxPayload> {
    serde_json::from_str(&row.payload).ok()
}

fn cancel(id: IntentId, reason: &str) -> Command {
    Command::Cancel(operate(id, reason))
}

fn operate(id: IntentId, reason: &str) -> Operate {
    Operate {
        id,
        face: Face::Mesh,
        reason: reason.to_owned(),
    }
}

/// A row that is absent, delivered or retired.
fn refused(error: Error) -> OutboxError {
    if matches!(error, Error::Refused(_)) {
        OutboxError::NotAllowed
    } else {
        OutboxError::Ledger(error)
    }
}

/// The form that the table shows.
fn hyphenated(id: IntentId) -> String {
    crate::id::BrokerMessageId::from_bytes(id.0).to_string()
}

fn parse_id(text: &str) -> Option<IntentId> {
    let id = crate::id::BrokerMessageId::parse(text).ok()?;
    Some(IntentId(id.to_bytes()))
}

/// How long a claim waits before the loop looks at everything else.
pub(super) const CLAIM_WAIT: Duration = Duration::from_micros(30 * SECOND_US as u64);
