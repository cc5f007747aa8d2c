//! Reconciliation: transactions without a lease are checked again, after a crash, after a delay, or after a callback of the
//! rail.
//!
//! A released row says when it is due, and the lease of a dead driver expires; so a sweep is a claim. All nodes may sweep
//! concurrently.

use std::time::Duration;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::command::{Audience, Claim, Hold, Recover, Take};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use serde_json::json;
use tokio::task::JoinSet;

use super::drive::LeasedTransaction;
use super::reads::row_payload;
use super::records::{self, NAMESPACE, TransactionRef};
use super::{OWNER, Site, damaged, unavailable};
use crate::key::IdempotencyKey;
use crate::problem::Problem;
use crate::rail::CallbackMessage;
use crate::state::AtpState;

/// Concurrent checks. A rail that hangs occupies one slot; the others continue.
const AT_ONCE: u32 = 16;
/// How long the sweeper waits for due rows before it checks whether to stop.
const WAIT: Duration = Duration::from_secs(30);
/// Delay after a refusal of the ledger.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the id of a rail event is stored.
const EVENT_MEMORY_US: i64 = 30 * consign_kernel::ids::DAY_US;
/// How often a callback retries while another driver holds the lease.
const HINT_PATIENCE: u32 = 20;

/// The result of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    pub looked_at: u32,
    pub settled: u32,
    pub compensated: u32,
    pub open: u32,
}

impl Site {
    /// Recovers the leases of this node's previous start. Must run before serving.
    pub async fn recover(&self) -> Result<u32, Problem> {
        let options = self.options();
        let recover = Recover {
            face: Face::Transaction,
            node: options.node.clone(),
            start: options.start.clone(),
            limit: 1_000,
        };
        let recovered = self.engine().recover(&recover).await;
        let recovered = recovered.map_err(|error| unavailable(&error))?;
        Ok(u32::try_from(recovered.len()).unwrap_or(u32::MAX))
    }

    /// Drives all due transactions, as long as the process lives.
    pub async fn sweep_forever(self) {
        let mut looks = SweepTasks::default();
        loop {
            let room = looks.free_slots().await;
            match self.claim_due(room, WAIT).await {
                Ok(rows) => looks.begin(&self, rows),
                Err(problem) => {
                    tracing::warn!(%problem, "the sweep could not claim transactions");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Sweeps all transactions without a lease once, whether they are due or not.
    pub async fn reconcile(&self) -> Result<SweepCounts, Problem> {
        // The caller may disconnect; rows that were leased are driven all the same.
        let site = self.clone();
        let looking = tokio::spawn(async move { site.sweep_all().await });
        looking.await.map_err(|_| Problem::StoreUnavailable)?
    }

    async fn sweep_all(&self) -> Result<SweepCounts, Problem> {
        let mut looks = SweepTasks::default();
        loop {
            let room = looks.free_slots().await;
            let rows = self.claim_due(room, Duration::ZERO).await?;
            if rows.is_empty() {
                break;
            }
            looks.begin(self, rows);
        }
        for state in [
            consign_kernel::state::State::Dispatched,
            consign_kernel::state::State::Delivered,
        ] {
            let mut after = Seq(0);
            loop {
                let page = self.open_after(state, after).await?;
                let Some(last) = page.last() else {
                    break;
                };
                after = last.seq;
                for row in page {
                    looks.free_slots().await;
                    looks.begin(self, self.take(row.id).await?);
                }
            }
        }
        Ok(looks.end().await)
    }

    async fn claim_due(&self, max: u32, wait: Duration) -> Result<Vec<Intent>, Problem> {
        let Hold { holder, lease_us } = self.hold();
        let claim = Claim {
            face: Face::Transaction,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder,
            audience: Audience::Publisher(OWNER.to_owned()),
            worker_id: None,
            capabilities: Vec::new(),
            max,
            lease_us,
            grant: None,
        };
        let claimed = self.engine().claim(None, claim, wait).await;
        claimed.map_err(|error| unavailable(&error))
    }

    /// Leases a row that has no holder, whether it is due or not.
    pub(super) async fn take(&self, id: IntentId) -> Result<Option<Intent>, Problem> {
        let take = Take {
            detail: None,
            id,
            face: Face::Transaction,
            hold: self.hold(),
        };
        match self.engine().take(take).await {
            Err(Error::Refused(Refusal::Held | Refusal::IllegalState | Refusal::NotFound)) => {
                Ok(None)
            }
            taken => taken.map_err(|error| unavailable(&error)),
        }
    }

    pub(super) async fn drive_row(&self, row: Intent) -> Option<AtpState> {
        let undoes = row.ties.parent.is_some();
        let held = match self.load_leased(row).await {
            Ok(held) => held,
            Err(problem) => {
                tracing::error!(%problem, "a transaction cannot be loaded");
                return None;
            }
        };
        let transaction = held.transaction.clone();
        if undoes {
            self.drive_compensation(held).await;
        } else {
            self.drive(held).await;
        }
        let now = self.reload(&transaction).await.ok()?;
        now.value.state().ok()
    }

    pub(super) async fn load_leased(&self, row: Intent) -> Result<LeasedTransaction, Problem> {
        let about = row_payload(&row)?;
        let key = IdempotencyKey::stored(about.key);
        let found = self.transaction(&about.intent_id, &key).await?;
        let transaction = found.ok_or_else(|| damaged("transaction"))?;
        let found = self.permission(&about.intent_id).await?;
        let permission = found.ok_or_else(|| damaged("permission"))?;
        Ok(LeasedTransaction {
            row,
            intent: permission.value.intent()?,
            authorized_at: permission.value.authorized_at,
            key,
            transaction,
            is_fresh: false,
            has_prepared: false,
        })
    }

    /// `POST /rails/{rail}/callback`: triggers a check of one transaction. The content of the message is not trusted.
    pub async fn callback(
        &self,
        rail: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<(), Problem> {
        if rail != self.rail().name() {
            return Err(Problem::NotFound { what: "rail" });
        }
        let message = CallbackMessage {
            headers,
            body,
            now: self.now(),
        };
        let hint = self.rail().parse_callback(message)?;
        let event_key = records::event_key(rail, &hint.event_id);
        let heard: Option<Versioned<serde_json::Value>> = self.read(event_key.clone()).await?;
        let Some(about) = hint.about.filter(|_| heard.is_none()) else {
            return Ok(());
        };
        let belongs: Option<Versioned<TransactionRef>> =
            self.read(records::reference_key(rail, &about)).await?;
        let Some(belongs) = belongs else {
            tracing::info!(
                rail,
                "a callback does not match any transaction of this site"
            );
            return Ok(());
        };
        // Stored only after the check: a rail without an answer delivers the event again.
        self.recheck_transaction(&belongs.value).await?;
        let mut unit = UnitOfWork::default();
        let until = self.engine_now().plus(EVENT_MEMORY_US);
        unit.put_until(event_key, &json!({}), until);
        self.commit(unit).await?;
        Ok(())
    }

    /// Checks the transaction of a payment id or reference after a change at the rail.
    pub async fn recheck(&self, about: &str) -> Result<(), Problem> {
        let rail = self.rail().name();
        let belongs: Option<Versioned<TransactionRef>> =
            self.read(records::reference_key(rail, about)).await?;
        match belongs {
            Some(belongs) => self.recheck_transaction(&belongs.value).await,
            None => Ok(()),
        }
    }

    /// Checks the transaction and its compensation, unless another driver keeps their leases.
    async fn recheck_transaction(&self, belongs: &TransactionRef) -> Result<(), Problem> {
        let key = IdempotencyKey::stored(&belongs.key);
        let found = self.transaction(&belongs.intent_id, &key).await?;
        let transaction = found.ok_or_else(|| damaged("transaction"))?;
        let mut rows = vec![transaction.value.row()?];
        let undo = transaction.value.compensation.as_ref();
        rows.extend(undo.and_then(|asked| asked.row.parse::<IntentId>().ok()));
        for id in rows {
            if let Some(row) = self.take_with_wait(id).await? {
                let site = self.clone();
                // The rail that sent the callback may disconnect.
                let looking = tokio::spawn(async move { site.drive_row(row).await });
                looking.await.map_err(|_| Problem::StoreUnavailable)?;
            }
        }
        Ok(())
    }

    /// Retries for a short time while another driver holds the lease.
    pub(super) async fn take_with_wait(&self, id: IntentId) -> Result<Option<Intent>, Problem> {
        for _ in 0..HINT_PATIENCE {
            let taken = self.take(id).await?;
            if taken.is_some() || !self.is_held(id).await? {
                return Ok(taken);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    async fn is_held(&self, id: IntentId) -> Result<bool, Problem> {
        let row = self.engine().observe(id).await;
        let row = row.map_err(|error| unavailable(&error))?;
        Ok(row.is_some_and(|row| row.is_leased(self.engine_now())))
    }
}

/// Running checks, and the counts of finished ones.
#[derive(Default)]
struct SweepTasks {
    under_way: JoinSet<Option<AtpState>>,
    swept: SweepCounts,
}

impl SweepTasks {
    /// The number of free slots, as soon as there is one: a row is leased only when it can be driven.
    async fn free_slots(&mut self) -> u32 {
        while let Some(ended) = self.under_way.try_join_next() {
            self.swept.count(ended.ok().flatten());
        }
        loop {
            let busy = u32::try_from(self.under_way.len()).unwrap_or(AT_ONCE);
            if busy < AT_ONCE {
                return AT_ONCE - busy;
            }
            self.join_one().await;
        }
    }

    fn begin(&mut self, site: &Site, rows: impl IntoIterator<Item = Intent>) {
        for row in rows {
            let site = site.clone();
            self.under_way
                .spawn(async move { site.drive_row(row).await });
        }
    }

    /// Returns false if no check was running.
    async fn join_one(&mut self) -> bool {
        let Some(ended) = self.under_way.join_next().await else {
            return false;
        };
        self.swept.count(ended.ok().flatten());
        true
    }

    async fn end(mut self) -> SweepCounts {
        while self.join_one().await {}
        self.swept
    }
}

impl SweepCounts {
    fn count(&mut self, state: Option<AtpState>) {
        self.looked_at += 1;
        match state {
            Some(AtpState::Settled) => self.settled += 1,
            Some(AtpState::Compensated) => self.compensated += 1,
            _ => self.open += 1,
        }
    }
}
