//! Transactions, as their agent sees them.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::SiteResponse;
use crate::rail::RailFailure;
use crate::site::{TransactionAnswer, TransactionView};
use crate::state::AtpState;

#[derive(Serialize)]
struct TransactionJson<'a> {
    ok: bool,
    intent_id: &'a str,
    transaction_id: &'a str,
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

impl<'a> TransactionJson<'a> {
    fn of(view: &'a TransactionView) -> Self {
        Self {
            ok: true,
            intent_id: &view.intent_id,
            transaction_id: &view.transaction_id,
            state: view.state,
            amount_cents: view.amount_cents,
            currency: &view.currency,
            rail: RailJson {
                name: &view.rail.name,
                reference: &view.rail.reference,
                payment_id: view.rail.payment_id.as_deref(),
            },
            receipt: view.receipt.as_deref(),
            compensation_receipt: view.compensation_receipt.as_deref(),
            failure: view.failure.as_ref(),
            created_at: &view.created_at,
            updated_at: &view.updated_at,
        }
    }
}

/// Status 202 asks the client to come back.
impl From<TransactionAnswer> for SiteResponse {
    fn from(answer: TransactionAnswer) -> Self {
        let status = if answer.is_pending { 202 } else { 200 };
        Self::new(status, &TransactionJson::of(&answer.transaction))
            .at(answer.transaction.state)
            .replayed(answer.replayed)
    }
}

impl From<TransactionView> for SiteResponse {
    fn from(view: TransactionView) -> Self {
        let mut body = transaction_value(&view);
        body["data"] = body.clone();
        Self::new(200, &body).at(view.state)
    }
}

/// A transaction as part of another body.
pub(super) fn transaction_value(view: &TransactionView) -> Value {
    serde_json::to_value(TransactionJson::of(view)).expect("a stored receipt is readable")
}
