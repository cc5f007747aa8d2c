//! The outbox: rows of the profile `mesh_outbox` in a ledger of the daemon's own, and the table that shows them.
//!
//! Invariant: a requeue retires the old row and makes the new one in one commit, and no request can use the new id in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{
    Engine, EngineClock, Error, Options as EngineOptions, SealKey, StoreError, Timekeeper,
    UnitOfWork, Versioned, new_put,
};
use consign_kernel::command::{Command, ForgetFacts, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, FactSeq, IntentId, Micros};
use consign_kernel::limits::{FACT_RETENTION_US, RETENTION_US};
use consign_kernel::profile::Face;
use consign_kernel::receipt::Signer;
use consign_kernel::record::{Key, Kind};
use consign_store::TypedReads as _;
use consign_store::sqlite::{
    Options as StoreOptions, OutboxTableRow, OutboxTally, QUEUE_REQUESTS_MAX, Sqlite,
};
use tokio::sync::RwLock;

use super::outbox_payload::OutboxPayload;
use super::outbox_queue::{OutboxQueue, QueuedRow, hyphenated, parse_id, payload};
use super::random;
use crate::fingerprint::RequestFingerprint;
use crate::outbox::{OutboxRow, OutboxStatus};

/// How many rows one request for removal examines.
const PIECE: u32 = 500;
/// Rows that an operator has retired are kept longer than delivered ones, because they say who did what.
const RETIRED_RETENTION_US: i64 = 30 * DAY_US;

#[derive(Debug, Clone)]
pub(super) struct OutboxLedger {
    pub(super) queue: OutboxQueue,
    store: Arc<Sqlite>,
    clock: Arc<EngineClock>,
    /// Requests that add a row share it; a requeue has it alone.
    ids: Arc<RwLock<()>>,
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
            queue: OutboxQueue::new(engine, mesh, start),
            store,
            clock,
            ids: Arc::default(),
        })
    }

    /// Ends pauses and lost leases in time, until `shutdown` resolves.
    pub(super) async fn keep_time(&self, shutdown: impl Future<Output = ()> + Send) {
        let clock = Arc::clone(&self.clock);
        let timekeeper = Timekeeper::new(self.queue.engine.clone());
        timekeeper.run(shutdown, || clock.follow()).await;
    }

    pub(super) fn close(&self) {
        self.store.close();
    }

    /// Adds the row or returns the one of its id. `waiting_max` counts rows that are pending or in flight, this one included.
    pub(super) async fn accept(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
        waiting_max: u64,
    ) -> Result<AcceptedRow, OutboxError> {
        let _shared = self.ids.read().await;
        match self.queue.add(payload, fingerprint, waiting_max).await {
            Ok(QueuedRow::New) => Ok(AcceptedRow::New),
            Ok(QueuedRow::Same | QueuedRow::Different) => {
                let known = self.find(&payload.client_message_id).await?;
                Ok(AcceptedRow::Known(known.ok_or(OutboxError::NotAllowed)?))
            }
            Err(Error::Refused(Refusal::CapReached { .. })) => Err(OutboxError::QueueFull),
            Err(error) => Err(error.into()),
        }
    }

    /// The row of an id. One whose row was removed is still delivered or retired: it is never sent again.
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
        let first = self
            .queue
            .engine
            .first_use(self.queue.once_key(client_message_id));
        let Some(first) = first.await? else {
            return Ok(None);
        };
        let retired = self.store.outbox_was_retired(client_message_id.to_owned());
        Ok(Some(OutboxRow {
            status: if retired.await? {
                OutboxStatus::Aborted
            } else {
                OutboxStatus::Done
            },
            fingerprint: RequestFingerprint::from_bytes(first.fingerprint),
            broker_message_id: None,
            history_id: None,
            last_error: None,
        }))
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

    /// Whether a message waits or is in flight.
    pub(super) async fn messages_wait(&self) -> Result<bool, OutboxError> {
        Ok(self.store.outbox_messages_wait().await?)
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
        let admitted = unit.admit(vec![self.queue.item(payload, fingerprint, Some(old))]);
        let mut committed = self.queue.engine.commit(unit).await.map_err(refused)?;
        let admitted = committed.get(admitted)?;
        let new = admitted.first().map(|one| hyphenated(one.id));
        Ok(new.unwrap_or_default())
    }

    /// Retires a row for good.
    pub(super) async fn drop_row(&self, id: &str) -> Result<(), OutboxError> {
        let id = parse_id(id).ok_or(OutboxError::NotAllowed)?;
        let dropped = self.queue.engine.apply(None, cancel(id, "dropped")).await;
        dropped.map(|_| ()).map_err(refused)
    }

    /// Removes rows that were delivered before their retention. Their ids stay used.
    pub(super) async fn prune(&self) -> Result<u64, OutboxError> {
        let before_ms = self.queue.engine.wall().minus(RETENTION_US).0 / 1_000;
        let rows = || self.store.outbox_delivered_before(before_ms, PIECE);
        self.remove(rows).await
    }

    /// Removes what is past its retention, if that was last done a day ago: delivered rows, retired rows, and facts. The
    /// ledger notes when, so that restarts do not matter. Returns the number of removed rows, or `None` if it is not due.
    pub(super) async fn prune_if_due(&self) -> Result<Option<u64>, OutboxError> {
        let engine = &self.queue.engine;
        let now = engine.now();
        let last: Option<Versioned<i64>> = engine.load(last_pruned()).await?;
        let Some(last) = last else {
            engine.put(new_put(last_pruned(), &now.0)).await?;
            return Ok(None);
        };
        if now.0.saturating_sub(last.value) < DAY_US {
            return Ok(None);
        }
        let mut removed = self.prune().await?;
        let before_ms = engine.wall().minus(RETIRED_RETENTION_US).0 / 1_000;
        let retired = || self.store.outbox_retired_before(before_ms, PIECE);
        removed += self.remove(retired).await?;
        self.forget_facts(now).await?;
        engine.put(new_put(last_pruned(), &now.0)).await?;
        Ok(Some(removed))
    }

    /// Facts are the history of rows. Nothing that the daemon does depends on them.
    async fn forget_facts(&self, now: Micros) -> Result<(), OutboxError> {
        let mut after = FactSeq(0);
        loop {
            let piece = ForgetFacts {
                face: Face::Mesh,
                before: now.minus(FACT_RETENTION_US),
                after,
                limit: PIECE,
            };
            match self.queue.engine.forget_facts(piece).await? {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// The bytes of the file that the next rows use before it grows.
    pub(super) async fn free_bytes(&self) -> Result<u64, OutboxError> {
        Ok(self.store.free_bytes().await?)
    }

    /// Resolves if the file accepts nothing any more until the next start.
    pub(super) async fn until_lost(&self) -> String {
        self.store.until_lost().await;
        let why = self.store.why_lost();
        why.unwrap_or("a write could not be synced").to_owned()
    }

    /// Removes the rows that a question finds, until it finds none.
    async fn remove<F>(&self, found: impl Fn() -> F) -> Result<u64, OutboxError>
    where
        F: Future<Output = Result<Vec<OutboxTableRow>, StoreError>>,
    {
        let mut pruned = 0;
        loop {
            let rows = found().await?;
            let steps: Vec<Command> = rows
                .iter()
                .filter_map(|row| parse_id(&row.id))
                .map(|id| Command::Remove(operate(id, "pruned")))
                .collect();
            if steps.is_empty() {
                return Ok(pruned);
            }
            let answers = self.queue.engine.execute(None, steps).await?;
            let removed = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
            pruned += removed;
            if removed == 0 {
                return Ok(pruned);
            }
        }
    }
}

/// The record with the time of the last removal, in microseconds.
fn last_pruned() -> Key {
    Key {
        kind: Kind::Site,
        owner: String::new(),
        name: "outbox.pruned".to_owned(),
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
