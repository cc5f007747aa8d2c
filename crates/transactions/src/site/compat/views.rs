//! Permissions, transactions and receipts in the words and shapes of this profile.

use consign_kernel::ids::Micros;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::document::AtpDocument;
use crate::instant;
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
pub(super) enum CompatStatus {
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

    const fn word(self) -> &'static str {
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

pub(super) fn intent_shown(
    permission: &PermissionRecord,
    intent: &SignedIntent,
    now: Micros,
) -> Value {
    let printed = |at: i64| instant::print(Micros(at));
    json!({
        "id": intent.intent_id,
        "user_id": permission.user,
        "site_id": member(intent.document(), "site_id"),
        "agent_id": intent.agent_id,
        "purpose": intent.purpose,
        "scope": intent.scope,
        "spend_cap_cents": intent.spend_cap.get(),
        "spend_currency": intent.currency,
        "spent_cents": permission.committed_cents,
        "max_executions": intent.max_executions,
        "used_executions": permission.executions,
        "status": CompatStatus::of(permission, intent, now).word(),
        "nonce": intent.nonce,
        "intent_hash": intent.hash(),
        "metadata": member(intent.document(), "metadata"),
        "created_at": printed(permission.created_at),
        "authorized_at": permission.authorized_at.map(printed),
        "expires_at": instant::print(intent.expires_at),
    })
}

fn member(document: &AtpDocument, name: &str) -> Value {
    let value = document.get(name).map(|value| value.text().to_owned());
    let value = value.and_then(|text| serde_json::from_str(&text).ok());
    value.unwrap_or(Value::Null)
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

    pub(super) fn transaction_shown(&self) -> Result<Value, Problem> {
        let transaction = &self.value;
        let manual = self.manual()?;
        let status = self.status()?;
        let sent: Value = serde_json::from_str(transaction.body.get()).unwrap_or_default();
        let undone = transaction.state()? == AtpState::Compensated;
        Ok(json!({
            "id": transaction.id(),
            "intent_id": self.intent_id(),
            "status": status.word(),
            "amount_cents": transaction.amount_cents,
            "currency": transaction.currency,
            "summary": transaction.summary,
            "metadata": sent["metadata"],
            "error": manual.error,
            "rail": transaction.rail,
            "created_at": transaction.created_at,
            "updated_at": transaction.updated_at,
            "started_at": manual.started_at,
            "completed_at": transaction.completed_at,
            "settled_at": manual.settled_at,
            "compensated_at": undone.then_some(&transaction.updated_at),
        }))
    }

    pub(super) fn steps_shown(&self) -> Result<Vec<Value>, Problem> {
        let steps = (1_u32..).zip(&self.manual()?.steps);
        steps
            .map(|(seq, step)| self.step_shown(seq, step))
            .collect()
    }

    pub(super) fn step_shown(&self, seq: u32, step: &ReportedStep) -> Result<Value, Problem> {
        let at = instant::print(Micros(step.at));
        Ok(json!({
            "transaction_id": self.value.id(),
            "seq": seq,
            "action": step.action,
            "state": DONE,
            "attempts": 1,
            "evidence": kept(step.evidence.as_deref())?,
            "before_snapshot": kept(step.before.as_deref())?,
            "after_snapshot": kept(step.after.as_deref())?,
            "compensation": kept(step.compensation.as_deref())?,
            "started_at": at,
            "ended_at": at,
        }))
    }

    /// The receipt of the final state: of the settlement, or of the compensation.
    pub(super) fn receipt_data(&self) -> Result<Option<Value>, Problem> {
        let TransactionRecord {
            receipt,
            compensation_receipt,
            ..
        } = &self.value;
        let Some(proof) = receipt.as_deref().or(compensation_receipt.as_deref()) else {
            return Ok(None);
        };
        let body = kept(Some(proof))?;
        Ok(Some(json!({
            "id": body["receipt_id"],
            "transaction_id": self.value.id(),
            "issued_at": body["issued_at"],
            "algorithm": body["signature"]["algorithm"],
            "key_id": body["signature"]["key_id"],
            "signature": body["signature"]["value"],
            "body": body,
            "compensation_receipt": kept(compensation_receipt.as_deref())?,
        })))
    }
}

fn kept(text: Option<&RawValue>) -> Result<Value, Problem> {
    let value = text.map(|text| serde_json::from_str(text.get()));
    let value = value.transpose().map_err(|_| damaged("document"))?;
    Ok(value.unwrap_or(Value::Null))
}
