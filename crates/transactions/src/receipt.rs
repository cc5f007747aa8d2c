//! The two receipts that prove the end of a transaction: `atp.receipt.v1` and `atp.compensation.v1`.
//!
//! Invariant: a receipt is created once, in the commit that settles or compensates, and stored as text; a compensation adds
//! a receipt and changes none. The idempotency key occurs as its hash alone.
//! This module does not decide when a receipt is due.

use consign_kernel::ids::Micros;
use serde::Serialize;

use crate::document::{AtpDocument, SignedText, SiteSigner};
use crate::instant;
use crate::intent::{IntentScope, SignedIntent};
use crate::key::{IdempotencyKey, RailReference};
use crate::money::{Cents, Currency};
use crate::state::AtpState;

pub const SETTLEMENT_TYPE: &str = "atp.receipt.v1";
pub const COMPENSATION_TYPE: &str = "atp.compensation.v1";

/// The content of the receipt of a settled transaction.
#[derive(Clone, Debug)]
pub struct SettlementReceipt<'a> {
    pub receipt_id: &'a str,
    pub transaction_id: &'a str,
    pub site_id: Option<&'a str>,
    pub intent: &'a SignedIntent,
    pub authorized_at: Micros,
    pub key: &'a IdempotencyKey,
    pub amount: Cents,
    pub currency: Currency,
    pub summary: Option<&'a str>,
    pub started_at: Micros,
    /// When the rail acknowledged the payment.
    pub completed_at: Micros,
    /// Also the time of issue: both are in one commit.
    pub settled_at: Micros,
    pub steps: &'a [ReceiptStep<'a>],
    pub rail: &'a str,
    pub payment_id: Option<&'a str>,
}

/// One executed step.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiptStep<'a> {
    pub seq: u32,
    pub action: &'a str,
    pub state: &'a str,
    pub attempts: u32,
    #[serde(with = "instant")]
    pub started_at: Micros,
    #[serde(serialize_with = "instant::maybe::serialize")]
    pub ended_at: Option<Micros>,
}

impl SettlementReceipt<'_> {
    pub fn sign(&self, signer: &SiteSigner) -> SignedText {
        let reference = self.key.rail_reference(&self.intent.intent_id);
        let body = SettlementBody {
            type_: SETTLEMENT_TYPE,
            receipt_id: self.receipt_id,
            issued_at: self.settled_at,
            site: &self.intent.site,
            site_id: self.site_id,
            agent_id: self.intent.agent_id.as_deref(),
            intent_id: &self.intent.intent_id,
            intent: PermissionBody {
                id: &self.intent.intent_id,
                hash: self.intent.hash(),
                purpose: &self.intent.purpose,
                scope: &self.intent.scope,
                amount_cents: self.intent.amount,
                spend_cap_cents: self.intent.spend_max().unwrap_or(Cents::ZERO),
                currency: self.intent.currency,
                authorized_at: self.authorized_at,
            },
            transaction: TransactionBody {
                id: self.transaction_id,
                status: AtpState::Settled,
                idempotency_key_hash: self.key.hash(),
                amount_cents: self.amount,
                currency: self.currency,
                summary: self.summary,
                started_at: self.started_at,
                completed_at: self.completed_at,
                settled_at: self.settled_at,
                compensated_at: (),
                error: (),
            },
            steps: self.steps,
            rail: RailBody {
                name: self.rail,
                reference: reference.as_str(),
                payment_id: self.payment_id,
            },
        };
        signer.sign(&body, self.settled_at)
    }
}

#[derive(Serialize)]
struct SettlementBody<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    receipt_id: &'a str,
    #[serde(with = "instant")]
    issued_at: Micros,
    site: &'a str,
    site_id: Option<&'a str>,
    agent_id: Option<&'a str>,
    intent_id: &'a str,
    intent: PermissionBody<'a>,
    transaction: TransactionBody<'a>,
    steps: &'a [ReceiptStep<'a>],
    rail: RailBody<'a>,
}

#[derive(Serialize)]
struct PermissionBody<'a> {
    id: &'a str,
    hash: String,
    purpose: &'a str,
    scope: &'a IntentScope,
    /// The amount signed for one execution; the charged amount is in the transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount_cents: Option<Cents>,
    /// The amount signed for all executions together; zero if none was.
    spend_cap_cents: Cents,
    currency: Currency,
    #[serde(with = "instant")]
    authorized_at: Micros,
}

#[derive(Serialize)]
struct TransactionBody<'a> {
    id: &'a str,
    status: AtpState,
    idempotency_key_hash: String,
    amount_cents: Cents,
    currency: Currency,
    summary: Option<&'a str>,
    #[serde(with = "instant")]
    started_at: Micros,
    #[serde(with = "instant")]
    completed_at: Micros,
    #[serde(with = "instant")]
    settled_at: Micros,
    /// Always null: a later compensation has its own document.
    compensated_at: (),
    error: (),
}

#[derive(Serialize)]
struct RailBody<'a> {
    name: &'a str,
    reference: &'a str,
    payment_id: Option<&'a str>,
}

/// The content of a compensation receipt.
#[derive(Clone, Debug)]
pub struct CompensationReceipt<'a> {
    pub receipt_id: &'a str,
    pub transaction_id: &'a str,
    pub site: &'a str,
    pub intent_id: &'a str,
    pub currency: Currency,
    /// The stored settlement receipt that is compensated.
    pub original: Option<OriginalReceipt<'a>>,
    pub from: AtpState,
    pub reason: &'a str,
    pub outcome: CompensationOutcome<'a>,
    /// Also the time of issue.
    pub compensated_at: Micros,
    pub rail: &'a str,
    pub reference: &'a RailReference,
    pub payment_id: Option<&'a str>,
    /// Who decided the outcome, if the rail could not report it.
    pub resolved_by: Option<&'a str>,
}

/// The settlement receipt that a compensation refers to.
#[derive(Clone, Copy, Debug)]
pub struct OriginalReceipt<'a> {
    pub receipt_id: &'a str,
    pub receipt: &'a AtpDocument,
}

/// Why no money has moved in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompensationOutcome<'a> {
    /// Paid, and refunded in full.
    Refunded {
        amount: Cents,
        reference: &'a str,
        refund_id: Option<&'a str>,
    },
    /// Held and released.
    Voided,
    NotCharged,
}

impl CompensationOutcome<'_> {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Refunded { .. } => "refunded",
            Self::Voided => "voided",
            Self::NotCharged => "not_charged",
        }
    }
}

impl CompensationReceipt<'_> {
    pub fn sign(&self, signer: &SiteSigner) -> SignedText {
        let (compensated_cents, refund_id, refund_reference) = match self.outcome {
            CompensationOutcome::Refunded {
                amount,
                reference,
                refund_id,
            } => (amount, refund_id, Some(reference)),
            CompensationOutcome::Voided | CompensationOutcome::NotCharged => {
                (Cents::ZERO, None, None)
            }
        };
        let body = CompensationBody {
            type_: COMPENSATION_TYPE,
            receipt_id: self.receipt_id,
            issued_at: self.compensated_at,
            site: self.site,
            intent_id: self.intent_id,
            transaction_id: self.transaction_id,
            original_receipt_id: self.original.map(|original| original.receipt_id),
            original_receipt_hash: self.original.map(|original| original.receipt.hash()),
            previous_state: self.from,
            state: AtpState::Compensated,
            reason: self.reason,
            outcome: self.outcome.word(),
            compensated_cents,
            currency: self.currency,
            rail: RefundBody {
                paid: RailBody {
                    name: self.rail,
                    reference: self.reference.as_str(),
                    payment_id: self.payment_id,
                },
                refund_reference,
                refund_id,
            },
            compensated_at: self.compensated_at,
            resolved_by: self.resolved_by,
        };
        signer.sign(&body, self.compensated_at)
    }
}

#[derive(Serialize)]
struct CompensationBody<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    receipt_id: &'a str,
    #[serde(with = "instant")]
    issued_at: Micros,
    site: &'a str,
    intent_id: &'a str,
    transaction_id: &'a str,
    original_receipt_id: Option<&'a str>,
    original_receipt_hash: Option<String>,
    previous_state: AtpState,
    state: AtpState,
    reason: &'a str,
    outcome: &'a str,
    compensated_cents: Cents,
    currency: Currency,
    rail: RefundBody<'a>,
    #[serde(with = "instant")]
    compensated_at: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_by: Option<&'a str>,
}

#[derive(Serialize)]
struct RefundBody<'a> {
    #[serde(flatten)]
    paid: RailBody<'a>,
    refund_reference: Option<&'a str>,
    refund_id: Option<&'a str>,
}
