//! `POST /execute`: a transaction is begun, once for each key, and brought to its end as far as the wait allows.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_kernel::command;
use consign_kernel::plant::{self, Plant};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::books::{self, About, Belongs, Kept, Permission, Transaction};
use super::carry::Held;
use super::recent::Known;
use super::{Answer, Caller, Site, TRIES_MAX, damaged};
use crate::document::{Document, REQUEST_BYTES_MAX};
use crate::envelope::{Envelope, Operation};
use crate::instant;
use crate::intent::Intent;
use crate::key::IdempotencyKey;
use crate::money::Cents;
use crate::problem::Problem;
use crate::request::Execute;
use crate::state::State;

/// How soon somebody who waits for another's work looks again, at first and at most.
pub(super) const LOOK_FIRST: Duration = Duration::from_millis(5);
pub(super) const LOOK_MAX: Duration = Duration::from_millis(200);

impl Site {
    pub async fn execute(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, REQUEST_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        let envelope = self.envelope(&document, Operation::Execute)?;
        let request = Execute::read(&document)?;
        let until = Instant::now() + self.options().execute_wait;
        for _ in 0..TRIES_MAX {
            // Nearly every request is the first of its key, and the commit itself refuses the second. Whatever comes of it, what
            // this very request began before goes first: it may be what used the permission up.
            let begun = match self.place() {
                Ok(place) => {
                    let begun = self.try_to_begin(&request, &key, &document, envelope).await;
                    begun.map(|held| held.map(|held| (held, place)))
                }
                Err(problem) => Err(problem),
            };
            if let Ok(Some((held, place))) = begun {
                return self.carried(held, place, until).await;
            }
            if let Some(known) = self.known(&request, &key, &document).await? {
                return self.replay(known, until).await;
            }
            begun?;
        }
        Err(Problem::StoreUnavailable)
    }

    /// What this very request began before.
    async fn known(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &Document,
    ) -> Result<Option<Kept<Transaction>>, Problem> {
        match self.transaction(&request.intent_id, key).await? {
            Some(known)
                if known.value.fingerprint != document.fingerprint()
                    && !plant::on(Plant::AnyRequest) =>
            {
                Err(Problem::IdempotencyMismatch)
            }
            Some(known) => {
                if document.names_its_operation() {
                    let intent = self.looked_up(&request.intent_id).await?.intent;
                    self.check_repeated(&intent, document)?;
                }
                Ok(Some(known))
            }
            None => Ok(None),
        }
    }

    async fn replay(&self, known: Kept<Transaction>, until: Instant) -> Result<Answer, Problem> {
        let ended = self.ended(known, until).await?;
        Ok(ended.answer()?.replayed(true))
    }

    /// Commits the transaction as executing, held by this process. `None` if somebody else was quicker.
    async fn try_to_begin(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &Document,
        envelope: Envelope,
    ) -> Result<Option<Held>, Problem> {
        let Known { permission, intent } = match self.recent().take(&request.intent_id) {
            Some(known) => known,
            None => self.looked_up(&request.intent_id).await?,
        };
        permission.value.check_caller(Caller::Agent)?;
        self.check_agent(&intent)?;
        intent.check_request(document, self.options().signed_requests)?;
        let amount = self.check_allowed(&permission.value, &intent, request);
        let amount = self.ended_if_over(&permission, amount).await?;
        self.check_fresh(envelope)?;
        self.check_bounded(&intent)?;
        request.check_rail(&intent, self.rail().name())?;
        self.check_not_ended(&permission.value, &intent).await?;
        self.rail().check_amount(amount, intent.currency)?;
        let transaction = self.begun(request, key, document, &intent, amount)?;
        self.begin(permission, intent, key, transaction).await
    }

    /// A transaction as it begins.
    pub(super) fn begun(
        &self,
        request: &Execute,
        key: &IdempotencyKey,
        document: &Document,
        intent: &Intent,
        amount: Cents,
    ) -> Result<Transaction, Problem> {
        let now = instant::print(self.now());
        Ok(Transaction {
            row: self.fresh_id().to_string(),
            state: State::Executing.word().to_owned(),
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
            word: None,
            manual: None,
        })
    }

    /// Commits a transaction and what it takes of its permission. `None` if somebody else was quicker.
    pub(super) async fn begin(
        &self,
        mut permission: Kept<Permission>,
        intent: Intent,
        key: &IdempotencyKey,
        transaction: Transaction,
    ) -> Result<Option<Held>, Problem> {
        permission.value.executions += u16::from(!plant::on(Plant::UncountedExecution));
        permission.value.committed_cents += transaction.amount_cents;
        let id = transaction.row()?;
        let about = About {
            intent_id: intent.intent_id.clone(),
            key: key.reveal().to_owned(),
        };
        let transaction_key = books::transaction_key(&intent.intent_id, key);
        let mut transaction = Kept::new(transaction_key, transaction);
        let belongs = Belongs {
            intent_id: about.intent_id.clone(),
            key: about.key.clone(),
        };
        // A rail may tell of a payment before, or without ever, giving it a name of its own.
        let reference = books::reference_key(&transaction.value.rail, &transaction.value.reference);
        let steps = vec![
            permission.unchanged(),
            transaction.unchanged(),
            permission.put(),
            transaction.put(),
            books::put(reference, &belongs),
            books::begin_effect(id, &about, None, self.hold()),
        ];
        if plant::on(Plant::RailBeforeCommit) {
            self.rail_of(&transaction.value)
                .prepare(&transaction.value.charge(&intent)?)
                .await;
        }
        failpoint::hit(Failpoint::BeforeExecution);
        let Some(mut answers) = self.commit(steps).await? else {
            return Ok(None);
        };
        let Some(command::Answer::Begun(row)) = answers.pop() else {
            return Err(damaged("answer"));
        };
        transaction.version = 1;
        Ok(Some(Held {
            row: *row,
            intent,
            authorized_at: permission.value.authorized_at,
            key: key.clone(),
            transaction,
            is_fresh: true,
            has_prepared: false,
        }))
    }

    async fn looked_up(&self, intent_id: &str) -> Result<Known, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        let intent = permission.value.intent()?;
        Ok(Known { permission, intent })
    }

    /// The amount, if the permission allows it now.
    pub(super) fn check_allowed(
        &self,
        permission: &Permission,
        intent: &Intent,
        request: &Execute,
    ) -> Result<Cents, Problem> {
        // With its one execution an intent has gone beyond its own expiry, so a fresh key is told the same for ever.
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

    /// Has it carried out by a task of its own, which goes on when the agent does not wait for it.
    async fn carried(
        &self,
        held: Held,
        place: OwnedSemaphorePermit,
        until: Instant,
    ) -> Result<Answer, Problem> {
        let begun = held.transaction.clone();
        let site = self.clone();
        let task = tokio::spawn(async move {
            let carried = site.carry(held).await;
            drop(place);
            carried
        });
        match tokio::time::timeout_at(until, task).await {
            Ok(Ok(Some(carried))) => carried.answer(),
            // Whatever kept it from telling, or from ending in time, the ledger knows how far it is.
            Ok(_) | Err(_) => self.again(&begun).await?.answer(),
        }
    }

    /// Waits until somebody else has brought it to its end, or the wait is over.
    pub(super) async fn ended(
        &self,
        mut known: Kept<Transaction>,
        until: Instant,
    ) -> Result<Kept<Transaction>, Problem> {
        let mut pause = LOOK_FIRST;
        let place = self.waiting_place();
        while place.is_some()
            && !known.value.state()?.is_terminal()
            && Instant::now() + pause < until
        {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
            known = self.again(&known).await?;
        }
        Ok(known)
    }

    pub(super) async fn again(
        &self,
        known: &Kept<Transaction>,
    ) -> Result<Kept<Transaction>, Problem> {
        let found = self.read(known.key.clone()).await?;
        found.ok_or_else(|| damaged("transaction"))
    }
}

pub(super) fn raw(text: String) -> Result<Box<RawValue>, Problem> {
    RawValue::from_string(text).map_err(|_| damaged("document"))
}
