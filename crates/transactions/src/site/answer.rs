//! The answer to a request; it is built after the commit that it reports.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::records::StoredTransaction;
use crate::problem::Problem;
use crate::rail::RailFailure;
use crate::state::AtpState;

/// A status and the exact bytes of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAnswer {
    pub status: u16,
    pub body: String,
    pub state: Option<AtpState>,
    /// The answer repeats a stored result; the operation was not executed again.
    pub replayed: bool,
}

impl SiteAnswer {
    pub(super) fn new(status: u16, body: &Value) -> Self {
        Self::text(status, body.to_string())
    }

    /// For answers that the face builds itself.
    pub fn of(status: u16, body: &Value) -> Self {
        Self::new(status, body)
    }

    pub(super) fn text(status: u16, body: String) -> Self {
        Self {
            status,
            body,
            state: None,
            replayed: false,
        }
    }

    #[must_use]
    pub(super) fn at(self, state: AtpState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    #[must_use]
    pub(super) fn replayed(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }

    /// Seconds until the client should ask again, if the state is not final.
    pub fn retry_after_s(&self) -> Option<u32> {
        (self.status == 202).then_some(1)
    }
}

/// The public JSON of a transaction. It depends on the record alone, so its bytes change only with the record.
#[derive(Serialize)]
pub(super) struct TransactionJson<'a> {
    ok: bool,
    intent_id: &'a str,
    transaction_id: String,
    state: AtpState,
    amount_cents: u64,
    currency: &'a str,
    rail: RailJson<'a>,
    receipt: Option<&'a RawValue>,
    compensation_receipt: Option<&'a RawValue>,
    failure: Option<&'a RailFailure>,
    created_at: &'a str,
    updated_at: &'a str,
}

#[derive(Serialize)]
struct RailJson<'a> {
    name: &'a str,
    reference: &'a str,
    payment_id: Option<&'a str>,
}

impl StoredTransaction {
    pub(super) fn intent_id(&self) -> &str {
        &self.key.owner
    }

    pub(super) fn transaction_json(&self) -> Result<TransactionJson<'_>, Problem> {
        let transaction = &self.value;
        let state = transaction.state()?;
        // The payment id becomes known while the state stays the same, and the bytes must change only with the
        // state.
        let payment_id = transaction.payment_id.as_deref();
        Ok(TransactionJson {
            ok: true,
            intent_id: self.intent_id(),
            transaction_id: transaction.id(),
            state,
            amount_cents: transaction.amount_cents,
            currency: &transaction.currency,
            rail: RailJson {
                name: &transaction.rail,
                reference: &transaction.reference,
                payment_id: payment_id.filter(|_| state != AtpState::Executing),
            },
            receipt: transaction.receipt.as_deref(),
            compensation_receipt: transaction.compensation_receipt.as_deref(),
            failure: transaction.failure.as_ref(),
            created_at: &transaction.created_at,
            updated_at: &transaction.updated_at,
        })
    }

    /// Status 200 if the state is final, otherwise 202: ask again.
    pub(super) fn answer(&self) -> Result<SiteAnswer, Problem> {
        let state = self.value.state()?;
        let status = if state.is_terminal() { 200 } else { 202 };
        Ok(SiteAnswer::text(status, print(&self.transaction_json()?)).at(state))
    }
}

pub(super) fn print(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("answers have string keys only")
}
