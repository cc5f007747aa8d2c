//! `POST /execute`: begins a transaction, once per key, and waits a bounded time for its final state.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::plant::{self, Plant};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::drive::LeasedTransaction;
use super::recent::CachedPermission;
use super::records::{
    self, PermissionRecord, RowPayload, StoredTransaction, TransactionRecord, TransactionRef,
};
use super::{Site, SiteCaller, TransactionAnswer, damaged, unavailable};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX};
use crate::envelope::{RequestEnvelope, RequestOperation};
use crate::instant;
use crate::intent::SignedIntent;
use crate::key::IdempotencyKey;
use crate::money::Cents;
use crate::problem::Problem;
use crate::request::Execute;
use crate::state::AtpState;

/// First and longest interval at which a request polls a transaction that another driver holds.
pub(super) const LOOK_FIRST: Duration = Duration::from_millis(5);
pub(super) const LOOK_MAX: Duration = Duration::from_millis(200);

impl Site {
    pub async fn execute(
        &self,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<TransactionAnswer, Problem> {
        let document = AtpDocument::read(body, REQUEST_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        let envelope = self.envelope(&document, RequestOperation::Execute)?;
        let request = Execute::read(&document)?;
        let until = Instant::now() + self.options().execute_wait;
        for _ in 0..TRIES_MAX {
            // Nearly every request is the first with its key, and the commit itself refuses a second. After a failure, a
            // transaction that this very request began before takes precedence: it may be what used the permission.
            let begun = match self.driver_slot() {
                Ok(place) => {
                    let begun = self.try_begin(&request, &key, &document, envelope).await;
                    begun.map(|held| held.map(|held| (held, place)))
                }
                Err(problem) => Err(problem),
            };
            if let Ok(Some((held, place))) = begun {
                return self.spawn_driver(held, place, until).await;
            }
            if let Some(known) = self.find_replay(&request, &key, &document).await? {
                return self.replay(known, until).await;
            }
            begun?;
        }
        Err(Problem::StoreUnavailable)
    }

    /// The transaction that this very request began before.
    async fn find_replay(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &AtpDocument,
    ) -> Result<Option<StoredTransaction>, Problem> {
        match self.transaction(&request.intent_id, key).await? {
            Some(known)
                if known.value.fingerprint != document.fingerprint()
                    && !plant::on(Plant::AnyRequest) =>
            {
                Err(Problem::IdempotencyMismatch)
            }
            Some(known) => {
                if document.names_its_operation() {
                    let intent = self.load_permission(&request.intent_id).await?.intent;
                    self.check_repeated(&intent, document)?;
                }
                Ok(Some(known))
            }
            None => Ok(None),
        }
    }

    async fn replay(
        &self,
        known: StoredTransaction,
        until: Instant,
    ) -> Result<TransactionAnswer, Problem> {
        let ended = self.wait_for_end(known, until).await?;
        Ok(ended.answer()?.replayed(true))
    }

    /// Commits the transaction as executing, leased by this process. Returns `None` after a concurrent change.
    async fn try_begin(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &AtpDocument,
        envelope: RequestEnvelope,
    ) -> Result<Option<LeasedTransaction>, Problem> {
        let CachedPermission { permission, intent } = match self.recent().take(&request.intent_id) {
            Some(known) => known,
            None => self.load_permission(&request.intent_id).await?,
        };
        permission.value.check_caller(SiteCaller::Agent)?;
        self.check_agent(&intent)?;
        intent.check_request(document, self.options().signed_requests)?;
        let amount = self.check_allowed(&permission.value, &intent, request);
        let amount = self.record_expiry(&permission, amount).await?;
        self.check_fresh(envelope)?;
        self.check_bounded(&intent)?;
        request.check_rail(&intent, self.rail().name())?;
        self.check_not_ended(&permission.value, &intent).await?;
        self.rail().check_amount(amount, intent.currency)?;
        let transaction = self.new_transaction(request, key, document, &intent, amount)?;
        self.commit_begin(permission, intent, key, transaction)
            .await
    }

    /// The record of a new transaction.
    pub(super) fn new_transaction(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &AtpDocument,
        intent: &SignedIntent,
        amount: Cents,
    ) -> Result<TransactionRecord, Problem> {
        let now = instant::print(self.now());
        Ok(TransactionRecord {
            row: self.fresh_id().to_string(),
            state: AtpState::Executing.word().to_owned(),
            fingerprint: document.fingerprint(),
            body: raw(String::from_utf8_lossy(document.sent()).into_owned())?,
            amount_cents: amount.get(),
            currency: intent.currency.as_str().to_owned(),
            action: request.action.clone(),
            summary: request.summary.clone(),
            rail: self.rail().name().to_owned(),
            reference: key.rail_reference(&intent.intent_id).as_str().to_owned(),
            payment_id: None,
            receipt: None,
            compensation_receipt: None,
            failure: None,
            compensation: None,
            created_at: now.clone(),
            updated_at: now,
            completed_at: None,
            missing_since: None,
            resubmitted: false,
            refund_sent_at: None,
            refunds_refused: 0,
            alert: None,
            verdict: None,
            manual: None,
        })
    }

    /// Commits a transaction and its share of the permission. Returns `None` after a concurrent change.
    pub(super) async fn commit_begin(
        &self,
        mut permission: Versioned<PermissionRecord>,
        intent: SignedIntent,
        key: &IdempotencyKey,
        transaction: TransactionRecord,
    ) -> Result<Option<LeasedTransaction>, Problem> {
        permission.value.executions += u16::from(!plant::on(Plant::UncountedExecution));
        permission.value.committed_cents += transaction.amount_cents;
        let id = transaction.row()?;
        let about = RowPayload {
            intent_id: intent.intent_id.clone(),
            key: key.reveal().to_owned(),
        };
        let transaction_key = records::transaction_key(&intent.intent_id, key);
        let mut transaction = StoredTransaction(Versioned::new(transaction_key, transaction));
        let belongs = TransactionRef {
            intent_id: about.intent_id.clone(),
            key: about.key.clone(),
        };
        // A rail may report a payment before it has assigned an id, or without ever assigning one.
        let reference =
            records::reference_key(&transaction.value.rail, &transaction.value.reference);
        let mut unit = UnitOfWork::default();
        unit.replace(&permission);
        unit.replace(&transaction);
        unit.put(reference, &belongs);
        let row = unit.begin(records::begin_effect(id, &about, None, self.hold()));
        if plant::on(Plant::RailBeforeCommit) {
            self.rail_of(&transaction.value)
                .prepare(&transaction.value.charge(&intent)?)
                .await;
        }
        failpoint::hit(Failpoint::BeforeExecution);
        let Some(mut committed) = self.commit(unit).await? else {
            return Ok(None);
        };
        let row = committed.get(row).map_err(|error| unavailable(&error))?;
        transaction.version = 1;
        Ok(Some(LeasedTransaction {
            row,
            intent,
            authorized_at: permission.value.authorized_at,
            key: key.clone(),
            transaction,
            is_fresh: true,
            has_prepared: false,
        }))
    }

    async fn load_permission(&self, intent_id: &str) -> Result<CachedPermission, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        let intent = permission.value.intent()?;
        Ok(CachedPermission { permission, intent })
    }

    /// The amount, if the permission allows it now.
    pub(super) fn check_allowed(
        &self,
        permission: &PermissionRecord,
        intent: &SignedIntent,
        request: &Execute,
    ) -> Result<Cents, Problem> {
        // An intent with one execution keeps its state beyond expiry once it was executed, so another key always gets the same
        // error.
        if intent.max_executions == 1 && permission.executions > 0 {
            return Err(Problem::ExecutionLimitReached);
        }
        if !plant::on(Plant::ExecuteExpired) {
            permission.check_unexpired(intent, self.now())?;
        }
        if permission.authorized_at.is_none() {
            return Err(Problem::NotAuthorized);
        }
        if permission.executions >= intent.max_executions {
            return Err(Problem::ExecutionLimitReached);
        }
        request.check_currency(intent)?;
        let amount = request.amount(intent)?;
        let committed = if plant::on(Plant::CapForEach) {
            0
        } else {
            permission.committed_cents
        };
        let committed = Cents::new(committed).ok_or_else(|| damaged("spent"))?;
        if !intent.allows(committed, amount) {
            return Err(Problem::SpendCapExceeded);
        }
        request.check_action(intent)?;
        Ok(amount)
    }

    /// Drives the transaction in a task of its own, which continues when the agent disconnects.
    async fn spawn_driver(
        &self,
        held: LeasedTransaction,
        place: OwnedSemaphorePermit,
        until: Instant,
    ) -> Result<TransactionAnswer, Problem> {
        let begun = held.transaction.clone();
        let site = self.clone();
        let task = tokio::spawn(async move {
            let carried = site.drive(held).await;
            drop(place);
            carried
        });
        match tokio::time::timeout_at(until, task).await {
            Ok(Ok(Some(carried))) => carried.answer(),
            // If the task did not finish in time, the ledger has the current state.
            Ok(_) | Err(_) => self.reload(&begun).await?.answer(),
        }
    }

    /// Waits until another driver has finished the transaction, or the time is over.
    pub(super) async fn wait_for_end(
        &self,
        mut known: StoredTransaction,
        until: Instant,
    ) -> Result<StoredTransaction, Problem> {
        let mut pause = LOOK_FIRST;
        let place = self.waiting_slot();
        while place.is_some()
            && !known.value.state()?.is_terminal()
            && Instant::now() + pause < until
        {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
            known = self.reload(&known).await?;
        }
        Ok(known)
    }

    pub(super) async fn reload(
        &self,
        known: &StoredTransaction,
    ) -> Result<StoredTransaction, Problem> {
        let found = self.read(known.key.clone()).await?;
        found
            .map(StoredTransaction)
            .ok_or_else(|| damaged("transaction"))
    }
}

pub(super) fn raw(text: String) -> Result<Box<RawValue>, Problem> {
    RawValue::from_string(text).map_err(|_| damaged("document"))
}
