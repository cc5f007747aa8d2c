//! `POST /admin/transactions/{id}/resolve`: a person's word, where no rail can say what became of an effect.
//!
//! Invariant: the rail is asked once more before, and its word counts for more. Only what has an alert is in doubt; nothing is
//! ever done again on the strength of such a word.

use consign_kernel::ids::IntentId;
use serde_json::json;

use super::books::{Kept, Said, Transaction, Word};
use super::carry::Held;
use super::{Answer, Site, damaged};
use crate::document::{Document, NOTE_BYTES_MAX};
use crate::fields::Fields;
use crate::key::RailReference;
use crate::problem::Problem;
use crate::rail::{Failure, Worker};
use crate::receipt::Undone;
use crate::state::State;

const REASON_CHARS_MAX: usize = 500;

impl Site {
    pub async fn resolve(&self, transaction_id: &str, body: &[u8]) -> Result<Answer, Problem> {
        let word = self.read_word(&Document::read(body, NOTE_BYTES_MAX)?)?;
        let found = self.transaction_by_id(transaction_id).await?;
        let known = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        let row = known.open_row()?;
        let Some(taken) = self.take_soon(row).await? else {
            return self.refuse_word(&known).await;
        };
        // The rail may have found its voice, and then it counts for more.
        self.look_at_one(taken).await;
        let known = self.again(&known).await?;
        known.check_doubt(word.outcome)?;
        let Some(taken) = self.take_soon(row).await? else {
            return self.refuse_word(&known).await;
        };
        let mut held = self.held(taken).await?;
        if let Err(problem) = self.check_word(&held, word.outcome) {
            self.leave(&held).await?;
            return Err(problem);
        }
        if !self.believe(&mut held, word).await? {
            return Err(Problem::StoreUnavailable);
        }
        let shown = self.listed(&held.row).await?;
        let shown = shown.ok_or_else(|| damaged("transaction"))?;
        Ok(Answer::new(200, &json!({"ok": true, "transaction": shown})))
    }

    fn read_word(&self, document: &Document) -> Result<Word, Problem> {
        let fields = Fields::of(document);
        let wanted = "charged, not_charged, refunded or not_refunded";
        let outcome = fields.read("outcome", wanted, |value| {
            let word = value.as_str()?;
            Said::ALL.into_iter().find(|said| said.word() == word)
        })?;
        let reason = fields.text("reason", 1..=REASON_CHARS_MAX)?;
        Ok(Word {
            outcome: fields.need("outcome", outcome)?,
            reason: fields.need("reason", reason)?,
            at: self.now().0,
        })
    }

    /// Nobody could take it: it is at its end, or in hands that do not let go.
    async fn refuse_word(&self, known: &Kept<Transaction>) -> Result<Answer, Problem> {
        let now = self.again(known).await?;
        match now.value.state()? {
            state if state.is_terminal() => Err(Problem::NotInDoubt { state }),
            _ => Err(Problem::StoreUnavailable),
        }
    }

    /// A worker's effect lies in this very ledger, where only a server with that rail looks for it.
    fn check_word(&self, held: &Held, said: Said) -> Result<(), Problem> {
        held.transaction.check_doubt(said)?;
        let is_foreign = self.foreign_rail(held).is_some();
        if is_foreign && held.transaction.value.rail == Worker::NAME && said == Said::NotCharged {
            return Err(Problem::field(
                "outcome",
                "a worker may still have it: start the server with ATP_RAIL=worker and say it there",
            ));
        }
        Ok(())
    }

    /// As if the rail had said so, except that the records say who did.
    async fn believe(&self, held: &mut Held, word: Word) -> Result<bool, Problem> {
        let said = word.outcome;
        let never = Failure {
            code: Word::BY.to_owned(),
            message: word.reason.clone(),
        };
        let transaction_id = held.transaction.value.id();
        let (outcome, reason) = (said.word(), &word.reason);
        tracing::warn!(
            transaction_id,
            outcome,
            reason,
            "an operator has the last word"
        );
        let was_acknowledged = held.transaction.value.state()? == State::Executed;
        let amount = held.transaction.value.amount()?;
        held.transaction.value.word = Some(word);
        held.transaction.value.alert = None;
        match said {
            Said::Charged => self.settle(held).await,
            Said::NotCharged if was_acknowledged => {
                self.end(held, Undone::Voided, Some(never)).await
            }
            Said::NotCharged => self.end(held, Undone::NotCharged, Some(never)).await,
            Said::Refunded if was_acknowledged => self.end_undo(held, Undone::Voided).await,
            Said::Refunded => {
                let value = &held.transaction.value;
                let reference =
                    RailReference::stored(&value.reference).refund(value.refunds_refused);
                let refunded = Undone::Refunded {
                    amount,
                    reference: &reference,
                    refund_id: None,
                };
                self.end_undo(held, refunded).await
            }
            Said::NotRefunded => self.give_up_undo(held, never).await,
        }
    }
}

impl Kept<Transaction> {
    /// The row of what is under way: the effect, or its undoing.
    fn open_row(&self) -> Result<IntentId, Problem> {
        match &self.value.compensation {
            Some(asked) if self.value.is_being_undone() => {
                asked.row.parse().map_err(|_| damaged("row"))
            }
            Some(_) | None => self.value.row(),
        }
    }

    /// Whether nobody knows what this word is about.
    fn check_doubt(&self, said: Said) -> Result<(), Problem> {
        let is_about_it = said.is_about_refund() == self.value.is_being_undone();
        if self.value.alert.is_some() && is_about_it {
            return Ok(());
        }
        Err(Problem::NotInDoubt {
            state: self.value.state()?,
        })
    }
}
