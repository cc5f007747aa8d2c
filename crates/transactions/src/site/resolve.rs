//! `POST /admin/transactions/{id}/resolve`: an operator's verdict, for effects whose outcome no rail can report.
//!
//! Invariant: the rail is asked once more first, and its answer takes precedence. Only a transaction with an alert can be
//! resolved, and a verdict never repeats an effect.

use consign_kernel::ids::IntentId;

use super::drive::LeasedTransaction;
use super::records::{OperatorVerdict, StoredTransaction, VerdictOutcome};
use super::{Site, TransactionEntry, damaged};
use crate::document::{AtpDocument, NOTE_BYTES_MAX};
use crate::fields::DocumentFields;
use crate::key::RailReference;
use crate::problem::Problem;
use crate::rail::{RailFailure, WorkerRail};
use crate::receipt::CompensationOutcome;
use crate::state::AtpState;

const REASON_CHARS_MAX: usize = 500;

impl Site {
    pub async fn resolve(
        &self,
        transaction_id: &str,
        body: &[u8],
    ) -> Result<TransactionEntry, Problem> {
        let word = self.read_verdict(&AtpDocument::read(body, NOTE_BYTES_MAX)?)?;
        let found = self.transaction_by_id(transaction_id).await?;
        let known = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        let row = known.open_row()?;
        let Some(taken) = self.take_with_wait(row).await? else {
            return self.refuse_verdict(&known).await;
        };
        // The rail may be able to answer now; then its answer takes precedence.
        self.drive_row(taken).await;
        let known = self.reload(&known).await?;
        known.check_in_doubt(word.outcome)?;
        let Some(taken) = self.take_with_wait(row).await? else {
            return self.refuse_verdict(&known).await;
        };
        let mut held = self.load_leased(taken).await?;
        if let Err(problem) = self.check_verdict(&held, word.outcome) {
            self.release_unchanged(&held).await?;
            return Err(problem);
        }
        if !self.apply_verdict(&mut held, word).await? {
            return Err(Problem::StoreUnavailable);
        }
        let shown = self.transaction_entry(&held.row).await?;
        shown.ok_or_else(|| damaged("transaction"))
    }

    fn read_verdict(&self, document: &AtpDocument) -> Result<OperatorVerdict, Problem> {
        let fields = DocumentFields::of(document);
        let wanted = "charged, not_charged, refunded or not_refunded";
        let outcome = fields.read("outcome", wanted, |value| {
            let word = value.as_str()?;
            VerdictOutcome::ALL
                .into_iter()
                .find(|said| said.word() == word)
        })?;
        let reason = fields.text("reason", 1..=REASON_CHARS_MAX)?;
        Ok(OperatorVerdict {
            outcome: fields.need("outcome", outcome)?,
            reason: fields.need("reason", reason)?,
            at: self.now().0,
        })
    }

    /// The row could not be leased: it is final, or its lease is held.
    async fn refuse_verdict(&self, known: &StoredTransaction) -> Result<TransactionEntry, Problem> {
        let now = self.reload(known).await?;
        match now.value.state()? {
            state if state.is_terminal() => Err(Problem::NotInDoubt { state }),
            _ => Err(Problem::StoreUnavailable),
        }
    }

    /// A worker's effect is in this ledger, where only a server with that rail can find it.
    fn check_verdict(&self, held: &LeasedTransaction, said: VerdictOutcome) -> Result<(), Problem> {
        held.transaction.check_in_doubt(said)?;
        let is_foreign = self.foreign_rail(held).is_some();
        if is_foreign
            && held.transaction.value.rail == WorkerRail::NAME
            && said == VerdictOutcome::NotCharged
        {
            return Err(Problem::field(
                "outcome",
                "a worker may still hold it: start the server with ATP_RAIL=worker and resolve it there",
            ));
        }
        Ok(())
    }

    /// Applies the verdict like an answer of the rail; the records name the operator.
    async fn apply_verdict(
        &self,
        held: &mut LeasedTransaction,
        word: OperatorVerdict,
    ) -> Result<bool, Problem> {
        let said = word.outcome;
        let never = RailFailure {
            code: OperatorVerdict::BY.to_owned(),
            message: word.reason.clone(),
        };
        let transaction_id = held.transaction.value.id();
        let (outcome, reason) = (said.word(), &word.reason);
        tracing::warn!(
            transaction_id,
            outcome,
            reason,
            "an operator resolved the transaction"
        );
        let was_acknowledged = held.transaction.value.state()? == AtpState::Executed;
        let amount = held.transaction.value.amount()?;
        held.transaction.value.verdict = Some(word);
        held.transaction.value.alert = None;
        match said {
            VerdictOutcome::Charged => self.settle(held).await,
            VerdictOutcome::NotCharged if was_acknowledged => {
                self.end_without_charge(held, CompensationOutcome::Voided, Some(never))
                    .await
            }
            VerdictOutcome::NotCharged => {
                self.end_without_charge(held, CompensationOutcome::NotCharged, Some(never))
                    .await
            }
            VerdictOutcome::Refunded if was_acknowledged => {
                self.end_compensation(held, CompensationOutcome::Voided)
                    .await
            }
            VerdictOutcome::Refunded => {
                let value = &held.transaction.value;
                let reference =
                    RailReference::stored(&value.reference).refund(value.refunds_refused);
                let refunded = CompensationOutcome::Refunded {
                    amount,
                    reference: &reference,
                    refund_id: None,
                };
                self.end_compensation(held, refunded).await
            }
            VerdictOutcome::NotRefunded => self.reject_compensation(held, never).await,
        }
    }
}

impl StoredTransaction {
    /// The open row: of the effect, or of its refund.
    fn open_row(&self) -> Result<IntentId, Problem> {
        match &self.value.compensation {
            Some(asked) if self.value.is_being_compensated() => {
                asked.row.parse().map_err(|_| damaged("row"))
            }
            Some(_) | None => self.value.row(),
        }
    }

    /// Whether the subject of this verdict is in doubt.
    fn check_in_doubt(&self, said: VerdictOutcome) -> Result<(), Problem> {
        let is_about_it = said.is_about_refund() == self.value.is_being_compensated();
        if self.value.alert.is_some() && is_about_it {
            return Ok(());
        }
        Err(Problem::NotInDoubt {
            state: self.value.state()?,
        })
    }
}
