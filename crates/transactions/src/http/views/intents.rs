//! Intents: accepted, authorized, cancelled and shown.

use serde_json::{Value, json};

use super::transactions::transaction_value;
use crate::http::SiteResponse;
use crate::instant;
use crate::problem::ExpiredReason;
use crate::site::{CancelledIntent, ConsentAnswer, CreatedIntent, IntentView, IntentViewPage};
use crate::state::AtpState;

impl From<CreatedIntent> for SiteResponse {
    fn from(created: CreatedIntent) -> Self {
        let CreatedIntent {
            intent,
            created_at,
            replayed,
        } = created;
        let created_at = instant::print(created_at);
        let expires_at = instant::print(intent.expires_at);
        let data = json!({
            "id": intent.intent_id,
            "status": AtpState::Created.word(),
            "purpose": intent.purpose,
            "scope": intent.scope,
            "amount_cents": intent.amount,
            "spend_cap_cents": intent.spend_max().unwrap_or_default(),
            "currency": intent.currency,
            "max_executions": intent.max_executions,
            "nonce": intent.nonce,
            "expires_at": expires_at,
            "created_at": created_at,
        });
        let body = json!({
            "ok": true,
            "intent_id": intent.intent_id,
            "state": AtpState::Created.word(),
            "intent_hash": intent.hash(),
            "nonce": intent.nonce,
            "expires_at": expires_at,
            "created_at": created_at,
            "data": data,
        });
        let status = if replayed { 200 } else { 201 };
        Self::new(status, &body)
            .at(AtpState::Created)
            .replayed(replayed)
    }
}

impl From<ConsentAnswer> for SiteResponse {
    fn from(answer: ConsentAnswer) -> Self {
        Self::text(200, answer.body)
            .at(answer.state)
            .replayed(answer.replayed)
    }
}

impl From<CancelledIntent> for SiteResponse {
    fn from(cancelled: CancelledIntent) -> Self {
        let body = json!({
            "ok": true,
            "intent_id": cancelled.intent_id,
            "state": AtpState::Expired.word(),
            "expired_reason": ExpiredReason::Cancelled.word(),
            "expires_at": instant::print(cancelled.expires_at),
        });
        Self::new(200, &body)
            .at(AtpState::Expired)
            .replayed(cancelled.replayed)
    }
}

impl From<IntentView> for SiteResponse {
    fn from(view: IntentView) -> Self {
        Self::new(200, &intent_value(&view)).at(view.state)
    }
}

impl From<IntentViewPage> for SiteResponse {
    fn from(page: IntentViewPage) -> Self {
        let intents = page.intents.iter().map(|view| {
            let mut intent = intent_value(view);
            leave_out_receipts(&mut intent);
            intent
        });
        let next = page.next.map(|seq| seq.0);
        let body = json!({"ok": true, "data": intents.collect::<Value>(), "next": next});
        Self::new(200, &body)
    }
}

fn intent_value(view: &IntentView) -> Value {
    let IntentView { intent, state, .. } = view;
    let transactions = view.transactions.iter().map(transaction_value);
    let mut body = json!({
        "ok": true,
        "intent_id": intent.intent_id,
        "state": state.word(),
        "intent_hash": intent.hash(),
        "created_at": instant::print(view.created_at),
        "expires_at": instant::print(intent.expires_at),
        "transactions": transactions.collect::<Value>(),
        "more": view.more,
        "data": {
            "id": intent.intent_id,
            "status": state.word(),
            "purpose": intent.purpose,
            "scope": intent.scope,
            "amount_cents": intent.amount,
            "spend_cap_cents": intent.spend_max().unwrap_or_default(),
            "spent_cents": view.spent_cents,
            "currency": intent.currency,
            "max_executions": intent.max_executions,
            "executions": view.executions,
        },
    });
    if let Some(at) = view.authorized_at {
        body["authorized_at"] = instant::print(at).into();
    }
    if let Some(reason) = view.expired_reason {
        body["expired_reason"] = reason.word().into();
    }
    body
}

/// A list shows transactions without their receipts.
fn leave_out_receipts(intent: &mut Value) {
    let transactions = intent["transactions"].as_array_mut();
    for one in transactions.into_iter().flatten() {
        if let Some(members) = one.as_object_mut() {
            members.retain(|name, _| !name.ends_with("receipt"));
        }
    }
}
