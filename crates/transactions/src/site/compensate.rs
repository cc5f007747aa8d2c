//! `POST /compensate`: undoes a settled or executed transaction on request, once.
//!
//! The refund is an effect with a row of its own: it is leased by one driver at a time, found again after a crash, and
//! committed together with the end of the transaction that it undoes.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::command::{Command, Operate, Settlement};
use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::drive::{LOST, LeasedTransaction, alert_text};
use super::execute::raw;
use super::records::{
    self, CompensationRecord, CompensationRequest, PermissionRecord, RowPayload, StoredTransaction,
};
use super::{Site, SiteCaller, TransactionAnswer, damaged, micros, unavailable};
use crate::document::{AtpDocument, NOTE_BYTES_MAX};
use crate::envelope::RequestOperation;
use crate::ids;
use crate::instant;
use crate::key::IdempotencyKey;
use crate::outcome::RailOutcome;
use crate::problem::Problem;
use crate::rail::{Charge, Fenced, RailFailure, RefundOutcome};
use crate::receipt::CompensationOutcome;
use crate::request::Compensate;
use crate::state::AtpState;

const OPERATION: &str = "compensate";
/// A permission may have a thousand executions; if there are several, the request must name the transaction.
const CANDIDATES: u32 = 2;

impl Site {
    pub async fn compensate(
        &self,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<TransactionAnswer, Problem> {
        let document = AtpDocument::read(body, NOTE_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        self.envelope(&document, RequestOperation::Compensate)?;
        let request = Compensate::read(&document)?;
        self.compensate_for(SiteCaller::Agent, &key, &request, &document)
            .await
    }

    pub(super) async fn compensate_for(
        &self,
        caller: SiteCaller<'_>,
        key: &IdempotencyKey,
        request: &Compensate,
        document: &AtpDocument,
    ) -> Result<TransactionAnswer, Problem> {
        let until = Instant::now() + self.options().execute_wait;
        for _ in 0..TRIES_MAX {
            let found = self.permission(&request.intent_id).await?;
            let permission = found.ok_or(Problem::IntentNotFound)?;
            permission.value.check_caller(caller)?;
            if let Some(asked) = self.compensation_request(&request.intent_id, key).await? {
                if asked.value.fingerprint != document.fingerprint() {
                    return Err(Problem::IdempotencyMismatch);
                }
                if matches!(caller, SiteCaller::Agent) {
                    self.check_repeated(&permission.value.intent()?, document)?;
                }
                return self.replay_compensation(asked, until).await;
            }
            let transaction = self.target_transaction(request, &permission).await?;
            match &transaction.value.compensation {
                // The same request was stored between the two reads.
                Some(asked) if asked.key == key.reveal() && !asked.refused => continue,
                Some(asked) if !asked.refused => {
                    let transaction_id = transaction.value.id();
                    tracing::info!(transaction_id, "a second compensation was requested");
                    return Err(Problem::AlreadyCompensated);
                }
                Some(_) | None => {}
            }
            if matches!(caller, SiteCaller::Agent) {
                let intent = permission.value.intent()?;
                intent.check_request(document, self.options().signed_requests)?;
                self.check_fresh(self.envelope(document, RequestOperation::Compensate)?)?;
            }
            let state = transaction.value.state()?;
            match state {
                AtpState::Settled | AtpState::Executed => {}
                AtpState::Compensated => return Err(Problem::AlreadyCompensated),
                AtpState::Created
                | AtpState::Authorized
                | AtpState::Executing
                | AtpState::Expired => {
                    return Err(Problem::InvalidState { state });
                }
            }
            request.check_amount(transaction.value.amount()?)?;
            let place = self.driver_slot()?;
            let begun = self
                .begin_compensation(request, key, document, &permission, transaction)
                .await?;
            if let Some((held, asked)) = begun {
                return self
                    .spawn_compensation_driver(held, asked, place, until)
                    .await;
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// The transaction that a request refers to.
    async fn target_transaction(
        &self,
        request: &Compensate,
        permission: &Versioned<PermissionRecord>,
    ) -> Result<StoredTransaction, Problem> {
        if let Some(id) = &request.transaction_id {
            let found = self.transaction_by_id(id).await?;
            return found
                .filter(|found| found.intent_id() == request.intent_id)
                .ok_or(Problem::NotFound {
                    what: "transaction of this intent",
                });
        }
        let mut found = self.transactions(&request.intent_id, CANDIDATES).await?;
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(_), false) => Err(Problem::field(
                "transaction_id",
                "this intent has several transactions; name one",
            )),
            (None, _) => {
                let intent = permission.value.intent()?;
                let now = self.judged_at(&permission.value, &intent).await?;
                permission.value.check_unexpired(&intent, now)?;
                let state = permission.value.state(&intent, now);
                Err(Problem::InvalidState { state })
            }
        }
    }

    /// Stores the request; no other request can compensate the transaction from now on. Returns `None` after a concurrent
    /// change.
    async fn begin_compensation(
        &self,
        request: &Compensate,
        key: &IdempotencyKey,
        document: &AtpDocument,
        permission: &Versioned<PermissionRecord>,
        mut transaction: StoredTransaction,
    ) -> Result<Option<(LeasedTransaction, Versioned<CompensationRequest>)>, Problem> {
        let id = self.fresh_id();
        let mut asked = Versioned::new(
            records::answer_key(&request.intent_id, OPERATION, key),
            CompensationRequest {
                fingerprint: document.fingerprint(),
                transaction: transaction.key.name.clone(),
                row: id.to_string(),
                failure: None,
            },
        );
        // An alert was about the payment; from now on, alerts are about the compensation.
        transaction.value.alert = None;
        transaction.value.compensation = Some(CompensationRecord {
            key: key.reveal().to_owned(),
            reason: request.reason.clone(),
            requested_at: instant::print(self.now()),
            row: id.to_string(),
            refused: false,
        });
        let about = RowPayload {
            intent_id: request.intent_id.clone(),
            key: transaction.key.name.clone(),
        };
        let parent = transaction.value.row()?;
        let mut unit = UnitOfWork::default();
        unit.replace(&transaction);
        unit.replace(&asked);
        let row = unit.begin(records::begin_effect(id, &about, Some(parent), self.hold()));
        let Some(mut committed) = self.commit(unit).await? else {
            return Ok(None);
        };
        let row = committed.get(row).map_err(|error| unavailable(&error))?;
        transaction.version += 1;
        asked.version += 1;
        let held = LeasedTransaction {
            row,
            intent: permission.value.intent()?,
            authorized_at: permission.value.authorized_at,
            key: IdempotencyKey::stored(about.key),
            transaction,
            is_fresh: true,
            has_prepared: false,
        };
        Ok(Some((held, asked)))
    }

    /// The compensation request stored under this key.
    async fn compensation_request(
        &self,
        intent_id: &str,
        key: &IdempotencyKey,
    ) -> Result<Option<Versioned<CompensationRequest>>, Problem> {
        self.read(records::answer_key(intent_id, OPERATION, key))
            .await
    }

    async fn spawn_compensation_driver(
        &self,
        held: LeasedTransaction,
        asked: Versioned<CompensationRequest>,
        place: OwnedSemaphorePermit,
        until: Instant,
    ) -> Result<TransactionAnswer, Problem> {
        let site = self.clone();
        let task = tokio::spawn(async move {
            site.drive_compensation(held).await;
            drop(place);
        });
        let _ = tokio::time::timeout_at(until, task).await;
        let (transaction, asked) = self.reload_compensation(&asked).await?;
        transaction.compensation_answer(asked)
    }

    /// A repeated request waits for the result like the first one.
    async fn replay_compensation(
        &self,
        asked: Versioned<CompensationRequest>,
        until: Instant,
    ) -> Result<TransactionAnswer, Problem> {
        let pause = std::time::Duration::from_millis(50);
        let place = self.waiting_slot();
        loop {
            let (transaction, now) = self.reload_compensation(&asked).await?;
            let waits = place.is_some() && transaction.is_compensated_by(&now.row);
            if !waits || Instant::now() + pause >= until {
                return Ok(transaction.compensation_answer(now)?.replayed(true));
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn reload_compensation(
        &self,
        asked: &Versioned<CompensationRequest>,
    ) -> Result<(StoredTransaction, CompensationRequest), Problem> {
        let now: Option<Versioned<CompensationRequest>> = self.read(asked.key.clone()).await?;
        let now = now.ok_or_else(|| damaged("answer"))?;
        let key = IdempotencyKey::stored(&now.value.transaction);
        let found = self.transaction(&asked.key.owner, &key).await?;
        Ok((found.ok_or_else(|| damaged("transaction"))?, now.value))
    }

    /// Drives a compensation as far as possible now.
    pub(super) async fn drive_compensation(&self, mut held: LeasedTransaction) {
        let transaction_id = held.transaction.value.id();
        if let Err(problem) = self.compensate_leased(&mut held).await {
            tracing::warn!(transaction_id, %problem, "a refund waits for the next sweep");
        }
    }

    async fn compensate_leased(&self, held: &mut LeasedTransaction) -> Result<bool, Problem> {
        if let Some(why) = self.foreign_rail(held) {
            return self.alert(held, why).await;
        }
        held.transaction.value.alert = None;
        let charge = held.transaction.value.charge(&held.intent)?;
        match held.transaction.value.state()? {
            AtpState::Executed => self.cancel_acknowledged(held, &charge).await,
            // Nothing is left to undo, and the rail must not be called.
            AtpState::Compensated => self.close_compensation(held, "already_compensated").await,
            AtpState::Settled
            | AtpState::Executing
            | AtpState::Created
            | AtpState::Authorized
            | AtpState::Expired => self.refund(held, &charge).await,
        }
    }

    /// Cancels a payment that the rail has acknowledged and not completed.
    async fn cancel_acknowledged(
        &self,
        held: &mut LeasedTransaction,
        charge: &Charge,
    ) -> Result<bool, Problem> {
        let rail = self.rail_of(&held.transaction.value);
        let fenced = rail.cancel(charge, held.payment()).await;
        let report = rail.look_up(charge, held.payment()).await;
        match (report.outcome, fenced) {
            // An acknowledged payment must exist: this rail looks in the wrong account, and so would its fence.
            (RailOutcome::NotFound, _) => self.alert(held, alert_text(&report)).await,
            (RailOutcome::Succeeded, _) => self.refund(held, charge).await,
            (RailOutcome::Failed, _) | (_, Fenced::Cancelled) => {
                self.end_compensation(held, CompensationOutcome::Voided)
                    .await
            }
            // In transit: only a completed payment can be refunded.
            (RailOutcome::Held | RailOutcome::Processing, _) => {
                self.release(held, self.options().sweep).await
            }
            (RailOutcome::Unknown, _) | (RailOutcome::Unconfirmed, Fenced::Unknown) => {
                self.release_in_doubt(held, self.options().sweep).await
            }
            (RailOutcome::Unconfirmed | RailOutcome::Different | RailOutcome::Lost, _) => {
                self.alert(held, alert_text(&report)).await
            }
        }
    }

    /// A refund request without an answer may still arrive, and a rail that receives it twice may refund twice. So the attempt
    /// is stored before it is sent, and sent again only after the first one must have become visible.
    async fn refund(&self, held: &mut LeasedTransaction, charge: &Charge) -> Result<bool, Problem> {
        let patience = self.options().settle_delay;
        if let Some(sent_at) = held.transaction.value.refund_sent_at {
            let rest_us = Micros(sent_at).plus(micros(patience)).0 - self.engine_now().0;
            if let Ok(rest_us @ 1..) = u64::try_from(rest_us) {
                return self.release(held, Duration::from_micros(rest_us)).await;
            }
        }
        if !self.save_refund_attempt(held).await? {
            return Ok(false);
        }
        let rail = self.rail_of(&held.transaction.value);
        let refunded = rail.refund(charge, held.payment()).await;
        let reference = charge.refund_reference();
        held.transaction.value.refund_sent_at = None;
        match refunded {
            RefundOutcome::Done { refund_id } => {
                failpoint::hit(Failpoint::AfterRefund);
                let undone = CompensationOutcome::Refunded {
                    amount: charge.amount,
                    reference: &reference,
                    refund_id: refund_id.as_deref(),
                };
                self.end_compensation(held, undone).await
            }
            RefundOutcome::Refused(failure) => self.reject_compensation(held, failure).await,
            RefundOutcome::Pending => self.release(held, self.options().sweep).await,
            RefundOutcome::Unknown => {
                held.transaction.value.refund_sent_at = Some(self.engine_now().0);
                self.release_in_doubt(held, self.options().sweep.max(patience))
                    .await
            }
            RefundOutcome::Lost => self.alert(held, LOST.to_owned()).await,
        }
    }

    /// Stores the attempt. Returns false if the lease is lost.
    async fn save_refund_attempt(&self, held: &mut LeasedTransaction) -> Result<bool, Problem> {
        held.transaction.value.refund_sent_at = Some(self.engine_now().0);
        let mut unit = UnitOfWork::default();
        unit.extend(&held.lease(), self.lease_us());
        unit.replace(&held.transaction);
        self.advance(held, unit).await
    }

    /// Ends the refund's row and the transaction's row in one commit, with the compensation receipt.
    pub(super) async fn end_compensation(
        &self,
        held: &mut LeasedTransaction,
        undone: CompensationOutcome<'_>,
    ) -> Result<bool, Problem> {
        let now = self.now();
        let from = held.transaction.value.state()?;
        let asked = held.transaction.value.compensation.clone();
        let reason = asked.map_or_else(String::new, |asked| asked.reason);
        let receipt_id = ids::compensation(self.engine().entropy().draw());
        let signed =
            self.compensation_receipt(&held.transaction, &receipt_id, from, &reason, undone, now)?;
        let transaction = &mut held.transaction.value;
        transaction.compensation_receipt = Some(raw(signed.text)?);
        transaction.set_state(AtpState::Compensated, now);
        let compensate = Command::compensate(Operate {
            id: transaction.row()?,
            face: Face::Transaction,
            reason,
        });
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::Deliver);
        unit.settle(&held.lease(), Settlement::Complete { result: None });
        unit.require(compensate);
        unit.put(records::receipt_key(&receipt_id), &held.transaction_ref());
        self.give_back(held, &unit).await
    }

    /// The rail refuses the refund: the transaction keeps its state, and another request may try again.
    pub(super) async fn reject_compensation(
        &self,
        held: &mut LeasedTransaction,
        failure: RailFailure,
    ) -> Result<bool, Problem> {
        let Some(compensation) = &mut held.transaction.value.compensation else {
            return Err(damaged("compensation"));
        };
        compensation.refused = true;
        let key = IdempotencyKey::stored(&compensation.key);
        held.transaction.value.refunds_refused += 1;
        let asked = self
            .compensation_request(&held.intent.intent_id, &key)
            .await?;
        let mut asked = asked.ok_or_else(|| damaged("answer"))?;
        let error = failure.code.clone();
        // Stored with the request and not with the transaction, whose bytes change only with its state.
        asked.value.failure = Some(failure);
        let mut unit = UnitOfWork::default();
        unit.replace(&held.transaction);
        unit.replace(&asked);
        unit.settle(&held.lease(), Settlement::Reject { error });
        Ok(self.commit(unit).await?.is_some())
    }

    async fn close_compensation(
        &self,
        held: &LeasedTransaction,
        error: &str,
    ) -> Result<bool, Problem> {
        let error = error.to_owned();
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::Reject { error });
        Ok(self.commit(unit).await?.is_some())
    }

    /// Releases the lease for a later check and changes nothing else.
    pub(super) async fn release_unchanged(
        &self,
        held: &LeasedTransaction,
    ) -> Result<bool, Problem> {
        let after_us = held.pause_us(self.options().sweep);
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::LetGo { after_us });
        Ok(self.commit(unit).await?.is_some())
    }
}

impl StoredTransaction {
    fn is_compensated_by(&self, row: &str) -> bool {
        let asked = self.value.compensation.as_ref();
        asked.is_some_and(|asked| asked.row == row) && self.value.is_being_compensated()
    }

    /// Final when the transaction is compensated or the rail has refused; until then its state is unchanged.
    fn compensation_answer(
        mut self,
        asked: CompensationRequest,
    ) -> Result<TransactionAnswer, Problem> {
        let open = self.is_compensated_by(&asked.row);
        self.value.failure = asked.failure.or_else(|| self.value.failure.take());
        Ok(TransactionAnswer {
            is_pending: open,
            ..self.answer()?
        })
    }
}
