//! Drives one transaction to its final state. The driver is the holder of the lease: the request that began it, a callback or
//! the sweep. [`crate::outcome`] decides what follows from the rail's answer.
//!
//! Invariant: every step that moves money comes after a commit by the lease holder; a driver that has lost its lease does
//! nothing more.

use std::time::Duration;

use consign_engine::failpoint::{self, Failpoint};
use consign_engine::{Lease, TRIES_MAX, UnitOfWork};
use consign_kernel::command::Settlement;
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};

use super::execute::raw;
use super::records::{self, OperatorVerdict, StoredTransaction, TransactionRef, VerdictOutcome};
use super::{Site, damaged, micros};
use crate::document::SignedText;
use crate::ids;
use crate::instant;
use crate::intent::{ScopeAction, SignedIntent};
use crate::key::{IdempotencyKey, RailReference};
use crate::outcome::{NextStep, Phase, RailOutcome, Situation, next};
use crate::problem::Problem;
use crate::rail::{Charge, Fenced, RailFailure, RailReport, WorkerRail};
use crate::receipt::{self, CompensationOutcome, ReceiptStep};
use crate::state::AtpState;

/// A transaction that this process holds a lease on.
#[derive(Debug)]
pub(super) struct LeasedTransaction {
    pub(super) row: Intent,
    pub(super) intent: SignedIntent,
    pub(super) authorized_at: Option<i64>,
    pub(super) key: IdempotencyKey,
    pub(super) transaction: StoredTransaction,
    /// The rail cannot have been called for it before.
    pub(super) is_fresh: bool,
    /// This process has asked the rail to prepare a payment.
    pub(super) has_prepared: bool,
}

/// The state of a completed step in a receipt.
pub(super) const DONE: &str = "succeeded";
/// Rail calls per run; a rail that loops is called again later.
const ROUNDS_MAX: u32 = 8;
/// This many checks come at constant intervals; later ones at growing intervals.
const STEADY_LOOKS: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_hours(1);
/// How long a transaction is left alone whose caller reports its effects.
const UNTIL_REPORTED: Duration = Duration::from_hours(24);
pub(super) const LOST: &str = "its worker was lost and may have done the work: find out, then record the outcome with consign tx resolve";

const SILENT: &str = "the rail does not report the outcome: check that it is reachable with these credentials, or look up this payment there and record the outcome with consign tx resolve";

impl Site {
    /// Drives the transaction as far as possible now. Returns `None` if the lease is lost or the ledger does not answer.
    pub(super) async fn drive(&self, mut held: LeasedTransaction) -> Option<StoredTransaction> {
        let transaction_id = held.transaction.value.id();
        match self.drive_to_end(&mut held).await {
            Ok(true) => Some(held.transaction),
            Ok(false) => {
                if held.has_prepared {
                    self.cancel_late_payments(&held).await;
                }
                tracing::info!(transaction_id, "lost the lease of a transaction");
                None
            }
            Err(problem) => {
                tracing::warn!(transaction_id, %problem, "a transaction waits for the next sweep");
                None
            }
        }
    }

    /// Returns whether the lease is still held afterwards.
    async fn drive_to_end(&self, held: &mut LeasedTransaction) -> Result<bool, Problem> {
        if let Some(why) = self.foreign_rail(held) {
            return self.alert(held, why).await;
        }
        // The compensation's driver calls the rail; two drivers would take each other's effects for the rail's.
        if held.transaction.value.is_being_compensated() {
            return self.release_unchanged(held).await;
        }
        held.transaction.value.alert = None;
        let charge = held.transaction.value.charge(&held.intent)?;
        let rail = self.rail_of(&held.transaction.value);
        let mut report = if held.is_fresh {
            match self.submit(held, &charge).await? {
                Some(report) => report,
                None => return Ok(false),
            }
        } else if plant::on(Plant::SettleUnseen) {
            RailReport::of(RailOutcome::Succeeded)
        } else {
            rail.look_up(&charge, held.payment()).await
        };
        for _ in 0..ROUNDS_MAX {
            if plant::on(Plant::UnknownIsPaid) && report.outcome == RailOutcome::Unknown {
                report.outcome = RailOutcome::Succeeded;
            }
            if !self.save_payment_id(held, &report).await? {
                return Ok(false);
            }
            // A known payment must exist; paying again would be a guess.
            if report.outcome == RailOutcome::NotFound && held.payment().is_some() {
                return self.alert(held, alert_text(&report)).await;
            }
            let situation = self.situation(held, &charge)?;
            report = match next(report.outcome, situation) {
                NextStep::Settle => {
                    let settled = self.settle(held).await?;
                    if settled && held.transaction.value.resubmitted {
                        self.cancel_other_payments(held, &charge).await;
                    }
                    return Ok(settled);
                }
                NextStep::Acknowledge => {
                    return Ok(self.acknowledge(held).await?
                        && self.release(held, self.pause(held)).await?);
                }
                NextStep::Capture => {
                    if !self.acknowledge(held).await? {
                        return Ok(false);
                    }
                    rail.capture(&charge, held.payment()).await
                }
                NextStep::Confirm => {
                    if !self.extend_lease(held).await? {
                        return Ok(false);
                    }
                    rail.confirm(&charge, held.payment()).await
                }
                NextStep::Resubmit => {
                    held.transaction.value.resubmitted = true;
                    match self.submit(held, &charge).await? {
                        Some(report) => report,
                        None => return Ok(false),
                    }
                }
                action @ (NextStep::FenceAsNotCharged | NextStep::FenceAsVoided) => {
                    match rail.cancel(&charge, held.payment()).await {
                        Fenced::Cancelled => {
                            let undone = if action == NextStep::FenceAsVoided {
                                CompensationOutcome::Voided
                            } else {
                                CompensationOutcome::NotCharged
                            };
                            return self.end_without_charge(held, undone, report.failure).await;
                        }
                        Fenced::TooLate => rail.look_up(&charge, held.payment()).await,
                        Fenced::Unknown => {
                            return self.release_in_doubt(held, self.options().sweep).await;
                        }
                    }
                }
                NextStep::AskAgain => return self.wait_for_payment(held, &report).await,
                NextStep::Alert => return self.alert(held, alert_text(&report)).await,
            };
        }
        self.release(held, self.options().sweep).await
    }

    /// Prepares the payment, stores its id, and confirms it only then. Returns `None` if the lease is lost.
    async fn submit(
        &self,
        held: &mut LeasedTransaction,
        charge: &Charge,
    ) -> Result<Option<RailReport>, Problem> {
        if !held.is_fresh && !self.extend_lease(held).await? {
            return Ok(None);
        }
        held.is_fresh = false;
        let rail = self.rail_of(&held.transaction.value);
        failpoint::hit(Failpoint::BeforeRail);
        held.has_prepared = true;
        let prepared = rail.prepare(charge).await;
        failpoint::hit(Failpoint::AfterPrepare);
        if prepared.outcome != RailOutcome::Unconfirmed {
            return Ok(Some(prepared));
        }
        if !self.save_payment_id(held, &prepared).await? {
            return Ok(None);
        }
        Ok(Some(rail.confirm(charge, held.payment()).await))
    }

    /// This process has prepared a payment and then lost its lease. While the transaction is open, its driver may be about to
    /// confirm another payment under the same reference, and cancels the others when it settles; so nothing is cancelled here
    /// before that.
    async fn cancel_late_payments(&self, held: &LeasedTransaction) {
        let now = self.reload(&held.transaction).await;
        let state = now.and_then(|now| now.value.state());
        let charge = held.transaction.value.charge(&held.intent);
        if let (Ok(state), Ok(charge)) = (state, charge)
            && state.is_terminal()
        {
            self.cancel_other_payments(held, &charge).await;
        }
    }

    /// Cancels payments that were prepared and never confirmed. They move no money. A completed payment stays completed.
    async fn cancel_other_payments(&self, held: &LeasedTransaction, charge: &Charge) {
        let rail = self.rail_of(&held.transaction.value);
        let fenced = rail.cancel(charge, held.payment()).await;
        let transaction_id = held.transaction.value.id();
        tracing::info!(
            transaction_id,
            ?fenced,
            "cancelled payments that were never confirmed"
        );
    }

    fn situation(&self, held: &LeasedTransaction, charge: &Charge) -> Result<Situation, Problem> {
        let phase = if held.transaction.value.state()? == AtpState::Executed {
            Phase::Executed
        } else {
            Phase::Executing
        };
        let patience = micros(self.options().settle_delay);
        let missing = held.transaction.value.missing_since;
        Ok(Situation {
            phase,
            expired: held.intent.is_expired(self.now()),
            capture: charge.capture,
            asked_again: missing
                .is_some_and(|since| Micros(since).plus(patience) <= self.engine_now()),
        })
    }

    /// Extends the lease for the next rail calls. Returns false if it is lost.
    async fn extend_lease(&self, held: &LeasedTransaction) -> Result<bool, Problem> {
        let mut unit = UnitOfWork::default();
        unit.extend(&held.lease(), self.lease_us());
        Ok(self.commit(unit).await?.is_some())
    }

    /// Stores the rail's id of the payment, so that it can be looked up by it.
    async fn save_payment_id(
        &self,
        held: &mut LeasedTransaction,
        report: &RailReport,
    ) -> Result<bool, Problem> {
        let transaction = &mut held.transaction.value;
        let (Some(id), None) = (&report.payment_id, &transaction.payment_id) else {
            return Ok(true);
        };
        transaction.payment_id = Some(id.clone());
        let belongs = held.transaction_ref();
        let named = records::reference_key(&held.transaction.value.rail, id);
        let mut unit = UnitOfWork::default();
        unit.extend(&held.lease(), self.lease_us());
        unit.replace(&held.transaction);
        unit.put(named, &belongs);
        self.advance(held, unit).await
    }

    /// Moves an executing transaction to executed.
    async fn acknowledge(&self, held: &mut LeasedTransaction) -> Result<bool, Problem> {
        if held.transaction.value.state()? == AtpState::Executed {
            return self.extend_lease(held).await;
        }
        let now = self.now();
        let transaction = &mut held.transaction.value;
        transaction.set_state(AtpState::Executed, now);
        transaction.completed_at = Some(instant::print(now));
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::Deliver);
        unit.extend(&held.lease(), self.lease_us());
        unit.replace(&held.transaction);
        self.advance(held, unit).await
    }

    /// Commits executed and settled together with the receipt.
    pub(super) async fn settle(&self, held: &mut LeasedTransaction) -> Result<bool, Problem> {
        failpoint::hit(Failpoint::AfterCharge);
        let now = self.now();
        let was = held.transaction.value.state()?;
        let transaction = &mut held.transaction.value;
        let printed = instant::print(now);
        transaction.completed_at.get_or_insert(printed);
        transaction.set_state(AtpState::Settled, now);
        let receipt_id = ids::receipt(self.engine().entropy().draw());
        let signed = self.settlement_receipt(held, &receipt_id, now)?;
        held.transaction.value.receipt = Some(raw(signed.text)?);
        let mut unit = UnitOfWork::default();
        if was == AtpState::Executing {
            unit.settle(&held.lease(), Settlement::Deliver);
        }
        unit.settle(&held.lease(), Settlement::Complete { result: None });
        unit.replace(&held.transaction);
        unit.put(records::receipt_key(&receipt_id), &held.transaction_ref());
        if held.intent.max_executions > 1 {
            unit.put(records::settled_key(&held.transaction.key), &());
        }
        let settled = self.advance(held, unit).await?;
        failpoint::hit(Failpoint::BeforeAnswer);
        Ok(settled)
    }

    fn settlement_receipt(
        &self,
        held: &LeasedTransaction,
        receipt_id: &str,
        now: Micros,
    ) -> Result<SignedText, Problem> {
        let transaction = &held.transaction.value;
        let parsed = |text: &str| instant::parse(text).ok_or_else(|| damaged("time"));
        let started_at = parsed(&transaction.created_at)?;
        let completed_at = transaction.completed_at.as_deref().map(parsed);
        let completed_at = completed_at.transpose()?.unwrap_or(now);
        let transaction_id = transaction.id();
        let steps = held.steps(started_at, completed_at);
        let settlement = receipt::SettlementReceipt {
            receipt_id,
            transaction_id: &transaction_id,
            site_id: held.intent.site_id.as_deref(),
            intent: &held.intent,
            authorized_at: Micros(held.authorized_at.unwrap_or(started_at.0)),
            key: &held.key,
            amount: transaction.amount()?,
            currency: transaction.currency()?,
            summary: transaction.summary.as_deref(),
            started_at,
            completed_at,
            settled_at: now,
            steps: &steps,
            rail: &transaction.rail,
            payment_id: transaction.payment_id.as_deref(),
        };
        Ok(settlement.sign(&self.keys().signer))
    }

    /// Ends the transaction as compensated without a charge, with a receipt; the reserved amount is released.
    pub(super) async fn end_without_charge(
        &self,
        held: &mut LeasedTransaction,
        undone: CompensationOutcome<'static>,
        failure: Option<RailFailure>,
    ) -> Result<bool, Problem> {
        let now = self.now();
        let from = held.transaction.value.state()?;
        let reason = failure.as_ref().map_or("not_charged", |why| &why.code);
        let receipt_id = ids::compensation(self.engine().entropy().draw());
        let signed =
            self.compensation_receipt(&held.transaction, &receipt_id, from, reason, undone, now)?;
        let transaction = &mut held.transaction.value;
        transaction.compensation_receipt = Some(raw(signed.text)?);
        let error = reason.to_owned();
        transaction.failure = failure;
        transaction.set_state(AtpState::Compensated, now);
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::Reject { error });
        unit.put(records::receipt_key(&receipt_id), &held.transaction_ref());
        self.give_back(held, &unit).await
    }

    /// The signed receipt of a compensation.
    pub(super) fn compensation_receipt(
        &self,
        transaction: &StoredTransaction,
        receipt_id: &str,
        from: AtpState,
        reason: &str,
        outcome: CompensationOutcome<'_>,
        now: Micros,
    ) -> Result<SignedText, Problem> {
        let value = &transaction.value;
        let original = value.receipt.as_ref().map(|receipt| {
            crate::document::AtpDocument::read(receipt.get().as_bytes(), usize::MAX)
                .map_err(|_| damaged("receipt"))
        });
        let original = original.transpose()?;
        let original_id = original.as_ref().and_then(|receipt| {
            let id = receipt.get("receipt_id")?;
            id.as_str().map(std::borrow::Cow::into_owned)
        });
        let original = original.as_ref().zip(original_id.as_deref());
        let compensation = receipt::CompensationReceipt {
            receipt_id,
            transaction_id: &value.id(),
            site: self.origin(),
            intent_id: transaction.intent_id(),
            currency: value.currency()?,
            original: original.map(|(receipt, receipt_id)| receipt::OriginalReceipt {
                receipt_id,
                receipt,
            }),
            from,
            reason,
            outcome,
            compensated_at: now,
            rail: &value.rail,
            reference: &RailReference::stored(&value.reference),
            payment_id: value.payment_id.as_deref(),
            resolved_by: (value.rests_on_verdict(VerdictOutcome::NotCharged)
                || value.rests_on_verdict(VerdictOutcome::Refunded))
            .then_some(OperatorVerdict::BY),
        };
        Ok(compensation.sign(&self.keys().signer))
    }

    /// Commits the end of a transaction without effect, together with the steps in `end`, and releases its reserved amount.
    pub(super) async fn give_back(
        &self,
        held: &mut LeasedTransaction,
        end: &UnitOfWork,
    ) -> Result<bool, Problem> {
        for _ in 0..TRIES_MAX {
            let found = self.permission(&held.intent.intent_id).await?;
            let mut permission = found.ok_or_else(|| damaged("permission"))?;
            let spent = &mut permission.value.committed_cents;
            *spent = spent.saturating_sub(held.transaction.value.amount_cents);
            permission.value.undone = permission.value.undone.map(|undone| undone + 1);
            let mut unit = end.clone();
            unit.replace(&held.transaction);
            unit.replace(&permission);
            if held.intent.max_executions > 1 {
                unit.delete(records::settled_key(&held.transaction.key));
            }
            if self.advance(held, unit).await? {
                return Ok(true);
            }
            // Either another transaction of the permission was committed first, or the lease is lost.
            let now = self.reload(&held.transaction).await?;
            if now.version != held.transaction.version {
                return Ok(false);
            }
        }
        Ok(false)
    }

    async fn wait_for_payment(
        &self,
        held: &mut LeasedTransaction,
        report: &RailReport,
    ) -> Result<bool, Problem> {
        let transaction = &mut held.transaction.value;
        if report.outcome == RailOutcome::NotFound {
            transaction.missing_since.get_or_insert(self.engine_now().0);
            return self.release(held, self.options().settle_delay).await;
        }
        self.release_in_doubt(held, self.pause(held)).await
    }

    /// A rail other than the one that the transaction was begun on does not know the payment, and its answer would be signed.
    pub(super) fn foreign_rail(&self, held: &LeasedTransaction) -> Option<String> {
        let begun_on = &held.transaction.value.rail;
        let ours = self.rail_of(&held.transaction.value).name();
        (begun_on != ours).then(|| {
            format!(
                "it was begun on the rail {begun_on} and this server uses {ours}: start a server with ATP_RAIL={begun_on}"
            )
        })
    }

    pub(super) async fn alert(
        &self,
        held: &mut LeasedTransaction,
        why: String,
    ) -> Result<bool, Problem> {
        let transaction_id = held.transaction.value.id();
        tracing::error!(transaction_id, why, "a transaction is not settled");
        held.transaction.value.alert = Some(why);
        self.release(held, self.options().sweep).await
    }

    /// For a rail without a conclusive answer. It may never give one, so an operator must be able to decide.
    pub(super) async fn release_in_doubt(
        &self,
        held: &mut LeasedTransaction,
        after: Duration,
    ) -> Result<bool, Problem> {
        let transaction = &held.transaction.value;
        // These rails are silent while they work: a worker, or the caller itself.
        let may_take_long = transaction.rail == WorkerRail::NAME || transaction.manual.is_some();
        if held.row.attempts >= STEADY_LOOKS && !may_take_long {
            return self.alert(held, SILENT.to_owned()).await;
        }
        self.release(held, after).await
    }

    /// Delay until the next check is useful. A caller that reports effects triggers the check itself.
    pub(super) fn pause(&self, held: &LeasedTransaction) -> Duration {
        match held.transaction.value.manual {
            Some(_) => UNTIL_REPORTED,
            None => self.options().sweep,
        }
    }

    /// Releases the lease; any driver may check again after the delay.
    pub(super) async fn release(
        &self,
        held: &mut LeasedTransaction,
        after: Duration,
    ) -> Result<bool, Problem> {
        let after_us = held.pause_us(after);
        let mut unit = UnitOfWork::default();
        unit.settle(&held.lease(), Settlement::LetGo { after_us });
        unit.replace(&held.transaction);
        self.advance(held, unit).await
    }

    pub(super) async fn advance(
        &self,
        held: &mut LeasedTransaction,
        unit: UnitOfWork,
    ) -> Result<bool, Problem> {
        let committed = self.commit(unit).await?.is_some() || plant::on(Plant::UnfencedLease);
        held.transaction.version += u64::from(committed);
        Ok(committed)
    }
}

/// The alert text for the operator.
pub(super) fn alert_text(report: &RailReport) -> String {
    if report.outcome == RailOutcome::Lost {
        return LOST.to_owned();
    }
    format!(
        "the rail reports {:?}, which is inconsistent: look up this payment there, then record the outcome with consign tx resolve",
        report.outcome
    )
}

impl LeasedTransaction {
    /// Delay until the next check; it grows for transactions that stay open. A callback of the rail shortens it.
    pub(super) fn pause_us(&self, at_first: Duration) -> i64 {
        let doublings = self.row.attempts.saturating_sub(STEADY_LOOKS).min(16);
        let pause = at_first.saturating_mul(1 << doublings).min(PAUSE_MAX);
        micros(pause.max(at_first))
    }

    pub(super) fn payment(&self) -> Option<&str> {
        self.transaction.value.payment_id.as_deref()
    }

    pub(super) fn transaction_ref(&self) -> TransactionRef {
        TransactionRef {
            intent_id: self.intent.intent_id.clone(),
            key: self.key.reveal().to_owned(),
        }
    }

    /// The action as the receipt names it.
    fn action_name(&self) -> &str {
        let actions = &self.intent.scope.actions;
        let pays = actions
            .contains(&ScopeAction::Pay)
            .then_some(ScopeAction::Pay);
        let usual = pays.or(actions.first().copied());
        let asked = self.transaction.value.action.as_deref();
        asked.unwrap_or(usual.map_or("pay", ScopeAction::word))
    }

    /// The steps of the receipt: as the caller reported them; or one step, and a second if an operator decided the outcome.
    fn steps(&self, started_at: Micros, completed_at: Micros) -> Vec<ReceiptStep<'_>> {
        let noted = self.transaction.value.manual.as_ref();
        let noted = noted.map_or(&[][..], |manual| &manual.steps);
        if noted.is_empty() {
            let done = ReceiptStep {
                seq: 1,
                action: self.action_name(),
                state: DONE,
                attempts: self.row.attempts,
                started_at,
                ended_at: Some(completed_at),
            };
            let word = self.transaction.value.verdict.as_ref();
            let word = word.filter(|word| word.outcome == VerdictOutcome::Charged);
            let word = word.map(|word| ReceiptStep {
                seq: 2,
                action: OperatorVerdict::STEP,
                attempts: 1,
                started_at: Micros(word.at),
                ended_at: Some(Micros(word.at)),
                ..done.clone()
            });
            return [done].into_iter().chain(word).collect();
        }
        let steps = (1..).zip(noted).map(|(seq, step)| ReceiptStep {
            seq,
            action: &step.action,
            state: DONE,
            attempts: 1,
            started_at: Micros(step.at),
            ended_at: Some(Micros(step.at)),
        });
        steps.collect()
    }

    pub(super) fn lease(&self) -> Lease {
        Lease::of(&self.row)
    }
}
