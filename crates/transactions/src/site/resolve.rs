//! `POST /admin/transactions/{id}/resolve`: a person's word, where no rail can say what became of an effect.
//!
//! Invariant: the rail is asked once more before, and its word counts for more. Only what has an alert is in doubt; nothing is
//! ever done again on the strength of such a word.

use consign_kernel::ids::IntentId;
use serde_json::json;

use super::books::{Belongs, Kept, Transaction, Word};
use super::carry::Held;
use super::{Answer, Site, damaged};
use crate::document::{Document, NOTE_BYTES_MAX};
use crate::fields::Fields;
use crate::problem::Problem;
use crate::rail::Failure;
use crate::receipt::Undone;
use crate::state::State;

const REASON_CHARS_MAX: usize = 500;
/// Why it ended, as the transaction tells it.
const CODE: &str = "operator";

impl Site {
    pub async fn resolve(&self, transaction_id: &str, body: &[u8]) -> Result<Answer, Problem> {
        let word = self.read_word(&Document::read(body, NOTE_BYTES_MAX)?)?;
        let found = self.transaction_by_id(transaction_id).await?;
        let known = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        self.look_at_both(&Belongs {
            intent_id: known.intent_id().to_owned(),
            key: known.key.name.clone(),
        })
        .await?;
        let known = self.again(&known).await?;
        let row = known.row_in_doubt()?;
        let taken = self.take_soon(row).await?;
        let mut held = self.held(taken.ok_or(Problem::StoreUnavailable)?).await?;
        if held.transaction.row_in_doubt() != Ok(row) {
            self.leave(&held).await?;
            return Err(Problem::StoreUnavailable);
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
        let happened = fields.read("happened", "true or false", |value| value.as_bool())?;
        let reason = fields.text("reason", 1..=REASON_CHARS_MAX)?;
        Ok(Word {
            happened: fields.need("happened", happened)?,
            reason: fields.need("reason", reason)?,
            at: self.now().0,
        })
    }

    /// As if the rail had said so, except that the records say who did.
    async fn believe(&self, held: &mut Held, word: Word) -> Result<bool, Problem> {
        let Word {
            happened,
            ref reason,
            ..
        } = word;
        let transaction_id = held.transaction.value.id();
        tracing::warn!(
            transaction_id,
            happened,
            reason,
            "an operator said what became of it"
        );
        let never = Failure {
            code: CODE.to_owned(),
            message: reason.clone(),
        };
        let undone = held.transaction.value.is_being_undone();
        let state = held.transaction.value.state()?;
        let amount = held.transaction.value.amount()?;
        held.transaction.value.word = Some(word);
        held.transaction.value.alert = None;
        match (undone, happened) {
            (false, true) => self.settle(held).await,
            (false, false) if state == State::Executed => {
                self.end(held, Undone::Voided, Some(never)).await
            }
            (false, false) => self.end(held, Undone::NotCharged, Some(never)).await,
            (true, true) if state == State::Executed => self.end_undo(held, Undone::Voided).await,
            (true, true) => {
                let refunded = Undone::Refunded {
                    amount,
                    refund_id: None,
                };
                self.end_undo(held, refunded).await
            }
            (true, false) => self.give_up_undo(held, never).await,
        }
    }
}

impl Kept<Transaction> {
    /// The row of the effect, or of its undoing, of which nobody knows what became of it.
    fn row_in_doubt(&self) -> Result<IntentId, Problem> {
        let state = self.value.state()?;
        if self.value.alert.is_none() {
            return Err(Problem::NotInDoubt { state });
        }
        match &self.value.compensation {
            Some(asked) if self.value.is_being_undone() => {
                asked.row.parse().map_err(|_| damaged("row"))
            }
            Some(_) | None => self.value.row(),
        }
    }
}
