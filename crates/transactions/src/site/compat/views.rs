//! Permissions, transactions and receipts in the words of this profile, as plain values.

use consign_kernel::ids::Micros;
use serde_json::value::RawValue;

use crate::intent::SignedIntent;
use crate::problem::Problem;
use crate::rail::ReportedStatus;
use crate::site::damaged;
use crate::site::drive::DONE;
use crate::site::records::{
    ManualRecord, PermissionRecord, ReportedStep, StoredTransaction, TransactionRecord,
};
use crate::state::AtpState;

/// The status of a permission in this profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompatStatus {
    Draft,
    Authorized,
    /// All executions are used.
    Consumed,
    Revoked,
    Expired,
}

impl CompatStatus {
    pub(super) fn of(permission: &PermissionRecord, intent: &SignedIntent, now: Micros) -> Self {
        if permission.cancelled {
            Self::Revoked
        } else if permission.executions >= intent.max_executions {
            Self::Consumed
        } else if intent.is_expired(now) {
            Self::Expired
        } else if permission.authorized_at.is_some() {
            Self::Authorized
        } else {
            Self::Draft
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Authorized => "authorized",
            Self::Consumed => "consumed",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }

    pub(super) const fn cannot_become(self, next: Self) -> Problem {
        Problem::IllegalMove {
            from: self.word(),
            to: next.word(),
        }
    }
}

/// A permission of a user.
#[derive(Clone, Debug)]
pub struct UserIntent {
    pub intent: SignedIntent,
    pub user: Option<String>,
    pub status: CompatStatus,
    /// Spent or reserved.
    pub spent_cents: u64,
    pub executions: u16,
    pub created_at: Micros,
    pub authorized_at: Option<Micros>,
}

impl UserIntent {
    pub(super) fn of(permission: &PermissionRecord, intent: SignedIntent, now: Micros) -> Self {
        Self {
            user: permission.user.clone(),
            status: CompatStatus::of(permission, &intent, now),
            spent_cents: permission.committed_cents,
            executions: permission.executions,
            created_at: Micros(permission.created_at),
            authorized_at: permission.authorized_at.map(Micros),
            intent,
        }
    }
}

/// Permissions of a user, latest first.
#[derive(Clone, Debug)]
pub struct UserIntentList {
    pub intents: Vec<UserIntent>,
}

/// A transaction whose effects the user reports.
#[derive(Clone, Debug)]
pub struct UserTransaction {
    pub transaction_id: String,
    pub intent_id: String,
    pub state: AtpState,
    pub status: ReportedStatus,
    pub amount_cents: u64,
    pub currency: String,
    pub summary: Option<String>,
    /// The request that began it, as it was sent.
    pub request: Box<RawValue>,
    pub error: Option<String>,
    pub rail: String,
    pub created_at: String,
    pub updated_at: String,
    pub started_at: Option<String>,
    pub completed_at: Option<String>,
    pub settled_at: Option<String>,
    pub compensated_at: Option<String>,
}

impl UserTransaction {
    pub(super) fn of(found: &StoredTransaction) -> Result<Self, Problem> {
        let transaction = &found.value;
        let manual = found.manual()?;
        let state = transaction.state()?;
        let undone = state == AtpState::Compensated;
        Ok(Self {
            transaction_id: transaction.id(),
            intent_id: found.intent_id().to_owned(),
            state,
            status: found.status()?,
            amount_cents: transaction.amount_cents,
            currency: transaction.currency.clone(),
            summary: transaction.summary.clone(),
            request: transaction.body.clone(),
            error: manual.error.clone(),
            rail: transaction.rail.clone(),
            created_at: transaction.created_at.clone(),
            updated_at: transaction.updated_at.clone(),
            started_at: manual.started_at.clone(),
            completed_at: transaction.completed_at.clone(),
            settled_at: manual.settled_at.clone(),
            compensated_at: undone.then(|| transaction.updated_at.clone()),
        })
    }
}

/// The result of a request that begins or changes a transaction.
#[derive(Clone, Debug)]
pub struct UserTransactionAnswer {
    pub transaction: UserTransaction,
    /// The transaction was begun by an earlier request with the same key.
    pub replayed: bool,
}

/// A transaction with its reported steps.
#[derive(Clone, Debug)]
pub struct UserTransactionSteps {
    pub transaction: UserTransaction,
    pub steps: Vec<UserStep>,
}

/// A step that the user reported. Documents of the user are kept as they were sent.
#[derive(Clone, Debug)]
pub struct UserStep {
    pub transaction_id: String,
    pub seq: u32,
    pub action: String,
    pub state: &'static str,
    pub at: Micros,
    pub evidence: Option<Box<RawValue>>,
    pub before: Option<Box<RawValue>>,
    pub after: Option<Box<RawValue>>,
    pub compensation: Option<Box<RawValue>>,
}

impl UserStep {
    /// The steps of a transaction, oldest first.
    pub(super) fn all_of(found: &StoredTransaction) -> Result<Vec<Self>, Problem> {
        let transaction_id = found.value.id();
        let steps = (1_u32..).zip(&found.manual()?.steps);
        let steps = steps.map(|(seq, step)| {
            let ReportedStep {
                action,
                at,
                evidence,
                before,
                after,
                compensation,
            } = step.clone();
            Self {
                transaction_id: transaction_id.clone(),
                seq,
                action,
                state: DONE,
                at: Micros(at),
                evidence,
                before,
                after,
                compensation,
            }
        });
        Ok(steps.collect())
    }
}

/// The receipt of the final state: of the settlement, or of the compensation.
#[derive(Clone, Debug)]
pub struct UserReceipt {
    pub transaction_id: String,
    pub state: AtpState,
    pub receipt: Box<RawValue>,
    pub compensation_receipt: Option<Box<RawValue>>,
}

impl UserReceipt {
    /// None before the final state.
    pub(super) fn of(found: &StoredTransaction, state: AtpState) -> Option<Self> {
        let TransactionRecord {
            receipt,
            compensation_receipt,
            ..
        } = &found.value;
        let proof = receipt.as_ref().or(compensation_receipt.as_ref())?;
        Some(Self {
            transaction_id: found.value.id(),
            state,
            receipt: proof.clone(),
            compensation_receipt: compensation_receipt.clone(),
        })
    }
}

impl StoredTransaction {
    pub(super) fn manual(&self) -> Result<&ManualRecord, Problem> {
        self.value.manual.as_ref().ok_or(Problem::Forbidden)
    }

    /// The ledger's state, refined by the reported status.
    pub(super) fn status(&self) -> Result<ReportedStatus, Problem> {
        let reported = self.manual()?.reported;
        match self.value.state()? {
            AtpState::Executing if reported == ReportedStatus::Pending => {
                Ok(ReportedStatus::Pending)
            }
            AtpState::Executing => Ok(ReportedStatus::Executing),
            AtpState::Executed => Ok(ReportedStatus::Executed),
            AtpState::Settled => Ok(ReportedStatus::Settled),
            AtpState::Compensated if reported == ReportedStatus::Failed => {
                Ok(ReportedStatus::Failed)
            }
            AtpState::Compensated => Ok(ReportedStatus::Compensated),
            AtpState::Created | AtpState::Authorized | AtpState::Expired => Err(damaged("state")),
        }
    }
}
