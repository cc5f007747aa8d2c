//! What reads return: intents, transactions, receipts and the log of transitions, as plain values.
//!
//! `http` chooses the member names and the order of a body. Receipts are signed documents, so they are kept as their exact
//! text.

use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::state::Cause;
use serde_json::value::RawValue;

use super::records::{OperatorVerdict, StoredTransaction, TransactionRecord};
use crate::intent::SignedIntent;
use crate::problem::{ExpiredReason, Problem};
use crate::rail::RailFailure;
use crate::state::AtpState;

/// A transaction as every client may see it. It depends on the record alone, so it changes only with the record.
#[derive(Clone, Debug)]
pub struct TransactionView {
    pub intent_id: String,
    pub transaction_id: String,
    pub state: AtpState,
    pub amount_cents: u64,
    pub currency: String,
    pub rail: RailView,
    pub receipt: Option<Box<RawValue>>,
    pub compensation_receipt: Option<Box<RawValue>>,
    pub failure: Option<RailFailure>,
    pub created_at: String,
    pub updated_at: String,
}

/// The rail of a transaction and its names for the payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailView {
    pub name: String,
    pub reference: String,
    pub payment_id: Option<String>,
}

impl TransactionView {
    pub(super) fn of(found: &StoredTransaction) -> Result<Self, Problem> {
        let transaction = &found.value;
        let state = transaction.state()?;
        // The payment id becomes known while the state stays the same, and the view must change only with the state.
        let payment_id = transaction.payment_id.clone();
        Ok(Self {
            intent_id: found.intent_id().to_owned(),
            transaction_id: transaction.id(),
            state,
            amount_cents: transaction.amount_cents,
            currency: transaction.currency.clone(),
            rail: RailView {
                name: transaction.rail.clone(),
                reference: transaction.reference.clone(),
                payment_id: payment_id.filter(|_| state != AtpState::Executing),
            },
            receipt: transaction.receipt.clone(),
            compensation_receipt: transaction.compensation_receipt.clone(),
            failure: transaction.failure.clone(),
            created_at: transaction.created_at.clone(),
            updated_at: transaction.updated_at.clone(),
        })
    }
}

/// A transaction with the details for operators.
#[derive(Clone, Debug)]
pub struct TransactionEntry {
    pub transaction: TransactionView,
    pub attempts: u32,
    /// Known before clients see it.
    pub payment_id: Option<String>,
    /// Why an operator must look at it.
    pub alert: Option<String>,
    pub compensation: Option<CompensationView>,
    pub verdict: Option<VerdictView>,
}

/// A requested compensation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompensationView {
    pub requested_at: String,
    pub reason: String,
    /// The rail refused.
    pub refused: bool,
}

/// The operator's verdict on an outcome that the rail could not report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictView {
    pub outcome: &'static str,
    pub reason: String,
    pub at: Micros,
}

impl TransactionEntry {
    pub(super) fn of(found: StoredTransaction, attempts: u32) -> Result<Self, Problem> {
        let transaction = TransactionView::of(&found)?;
        let TransactionRecord {
            payment_id,
            alert,
            compensation,
            verdict,
            ..
        } = found.0.value;
        Ok(Self {
            transaction,
            attempts,
            payment_id,
            alert,
            compensation: compensation.map(|asked| CompensationView {
                requested_at: asked.requested_at,
                reason: asked.reason,
                refused: asked.refused,
            }),
            verdict: verdict.map(VerdictView::of),
        })
    }
}

impl VerdictView {
    fn of(verdict: OperatorVerdict) -> Self {
        Self {
            outcome: verdict.outcome.word(),
            reason: verdict.reason,
            at: Micros(verdict.at),
        }
    }
}

/// A page of transactions for operators.
#[derive(Clone, Debug)]
pub struct TransactionPage {
    pub transactions: Vec<TransactionEntry>,
    /// The start of the next page, if there may be one.
    pub next: Option<Seq>,
}

/// An intent with its first transactions.
#[derive(Clone, Debug)]
pub struct IntentView {
    pub intent: SignedIntent,
    pub state: AtpState,
    pub created_at: Micros,
    pub authorized_at: Option<Micros>,
    /// Only in the state expired.
    pub expired_reason: Option<ExpiredReason>,
    /// Spent or reserved.
    pub spent_cents: u64,
    pub executions: u16,
    pub transactions: Vec<TransactionView>,
    /// There are further transactions.
    pub more: bool,
}

/// A page of intents for operators.
#[derive(Clone, Debug)]
pub struct IntentViewPage {
    pub intents: Vec<IntentView>,
    /// The start of the next page, if there may be one.
    pub next: Option<Seq>,
}

/// A stored receipt.
#[derive(Clone, Debug)]
pub struct ReceiptView {
    pub receipt_id: String,
    pub transaction_id: String,
    pub issued_at: Option<String>,
    pub receipt: Box<RawValue>,
}

/// The receipts of an intent's first transactions.
#[derive(Clone, Debug)]
pub struct ReceiptList {
    pub receipts: Vec<Box<RawValue>>,
}

/// A page of the log of transitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionPage {
    pub transitions: Vec<Transition>,
    pub next: FactSeq,
    pub more: bool,
}

/// One transition of an intent or a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub seq: FactSeq,
    pub at: Micros,
    pub intent_id: String,
    pub row: IntentId,
    pub from: Option<AtpState>,
    pub to: Option<AtpState>,
    pub cause: Cause,
}
