//! The bodies of the compatibility profile: every one has its content in `data`.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::document_value;
use crate::document::AtpDocument;
use crate::http::SiteResponse;
use crate::instant;
use crate::site::compat::{
    UserIntent, UserIntentList, UserReceipt, UserStep, UserTransaction, UserTransactionAnswer,
    UserTransactionSteps,
};

impl From<UserIntent> for SiteResponse {
    fn from(intent: UserIntent) -> Self {
        enveloped(&intent_value(&intent))
    }
}

impl From<UserIntentList> for SiteResponse {
    fn from(list: UserIntentList) -> Self {
        let intents = list.intents.iter().map(intent_value);
        enveloped(&intents.collect::<Value>())
    }
}

impl From<UserTransactionAnswer> for SiteResponse {
    fn from(answer: UserTransactionAnswer) -> Self {
        enveloped(&transaction_value(&answer.transaction))
            .at(answer.transaction.state)
            .replayed(answer.replayed)
    }
}

impl From<UserTransactionSteps> for SiteResponse {
    fn from(shown: UserTransactionSteps) -> Self {
        let mut data = transaction_value(&shown.transaction);
        data["steps"] = shown.steps.iter().map(step_value).collect();
        enveloped(&data).at(shown.transaction.state)
    }
}

impl From<UserStep> for SiteResponse {
    fn from(step: UserStep) -> Self {
        enveloped(&step_value(&step))
    }
}

impl From<UserReceipt> for SiteResponse {
    fn from(receipt: UserReceipt) -> Self {
        let body = document_value(&receipt.receipt);
        let data = json!({
            "id": body["receipt_id"],
            "transaction_id": receipt.transaction_id,
            "issued_at": body["issued_at"],
            "algorithm": body["signature"]["algorithm"],
            "key_id": body["signature"]["key_id"],
            "signature": body["signature"]["value"],
            "body": body,
            "compensation_receipt": receipt.compensation_receipt.as_deref().map(document_value),
        });
        enveloped(&data).at(receipt.state)
    }
}

/// The envelope of every response of this profile.
fn enveloped(data: &Value) -> SiteResponse {
    SiteResponse::new(200, &json!({"ok": true, "data": data}))
}

fn intent_value(shown: &UserIntent) -> Value {
    let UserIntent { intent, .. } = shown;
    json!({
        "id": intent.intent_id,
        "user_id": shown.user,
        "site_id": member(intent.document(), "site_id"),
        "agent_id": intent.agent_id,
        "purpose": intent.purpose,
        "scope": intent.scope,
        "spend_cap_cents": intent.spend_cap.get(),
        "spend_currency": intent.currency,
        "spent_cents": shown.spent_cents,
        "max_executions": intent.max_executions,
        "used_executions": shown.executions,
        "status": shown.status.word(),
        "nonce": intent.nonce,
        "intent_hash": intent.hash(),
        "metadata": member(intent.document(), "metadata"),
        "created_at": instant::print(shown.created_at),
        "authorized_at": shown.authorized_at.map(instant::print),
        "expires_at": instant::print(intent.expires_at),
    })
}

fn member(document: &AtpDocument, name: &str) -> Value {
    let value = document.get(name).map(|value| value.text().to_owned());
    let value = value.and_then(|text| serde_json::from_str(&text).ok());
    value.unwrap_or(Value::Null)
}

fn transaction_value(shown: &UserTransaction) -> Value {
    let request: Value = serde_json::from_str(shown.request.get()).unwrap_or_default();
    json!({
        "id": shown.transaction_id,
        "intent_id": shown.intent_id,
        "status": shown.status.word(),
        "amount_cents": shown.amount_cents,
        "currency": shown.currency,
        "summary": shown.summary,
        "metadata": request["metadata"],
        "error": shown.error,
        "rail": shown.rail,
        "created_at": shown.created_at,
        "updated_at": shown.updated_at,
        "started_at": shown.started_at,
        "completed_at": shown.completed_at,
        "settled_at": shown.settled_at,
        "compensated_at": shown.compensated_at,
    })
}

fn step_value(step: &UserStep) -> Value {
    let at = instant::print(step.at);
    let document = |document: &Option<Box<RawValue>>| document.as_deref().map(document_value);
    json!({
        "transaction_id": step.transaction_id,
        "seq": step.seq,
        "action": step.action,
        "state": step.state,
        "attempts": 1,
        "evidence": document(&step.evidence),
        "before_snapshot": document(&step.before),
        "after_snapshot": document(&step.after),
        "compensation": document(&step.compensation),
        "started_at": at,
        "ended_at": at,
    })
}
