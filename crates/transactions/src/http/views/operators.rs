//! Transactions with the details for operators, the log of transitions, and the result of a sweep.

use serde_json::{Value, json};

use super::transactions::transaction_value;
use crate::http::SiteResponse;
use crate::instant;
use crate::site::{
    CompensationView, SweepCounts, TransactionEntry, TransactionPage, Transition, TransitionPage,
    VerdictView,
};
use crate::state::AtpState;

impl From<TransactionEntry> for SiteResponse {
    fn from(entry: TransactionEntry) -> Self {
        let body = json!({"ok": true, "transaction": entry_value(&entry)});
        Self::new(200, &body)
    }
}

impl From<TransactionPage> for SiteResponse {
    fn from(page: TransactionPage) -> Self {
        let transactions = page.transactions.iter().map(entry_value);
        let next = page.next.map(|seq| seq.0);
        let body =
            json!({"ok": true, "transactions": transactions.collect::<Value>(), "next": next});
        Self::new(200, &body)
    }
}

impl From<TransitionPage> for SiteResponse {
    fn from(page: TransitionPage) -> Self {
        let body = json!({
            "ok": true,
            "transitions": page.transitions.iter().map(transition_value).collect::<Value>(),
            "next": page.next.0,
            "more": page.more,
        });
        Self::new(200, &body)
    }
}

impl From<SweepCounts> for SiteResponse {
    fn from(counts: SweepCounts) -> Self {
        let body = json!({
            "ok": true,
            "swept": {
                "looked_at": counts.looked_at,
                "settled": counts.settled,
                "compensated": counts.compensated,
                "open": counts.open,
            },
        });
        Self::new(200, &body)
    }
}

fn entry_value(entry: &TransactionEntry) -> Value {
    let mut body = transaction_value(&entry.transaction);
    body["attempts"] = entry.attempts.into();
    body["rail"]["payment_id"] = entry.payment_id.clone().into();
    body["alert"] = entry.alert.clone().into();
    body["compensation"] = entry.compensation.as_ref().map(compensation_value).into();
    body["operator_word"] = entry.verdict.as_ref().map(verdict_value).into();
    body
}

fn compensation_value(compensation: &CompensationView) -> Value {
    json!({
        "requested_at": compensation.requested_at,
        "reason": compensation.reason,
        "refused": compensation.refused,
    })
}

fn verdict_value(verdict: &VerdictView) -> Value {
    json!({
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "at": instant::print(verdict.at),
    })
}

fn transition_value(transition: &Transition) -> Value {
    json!({
        "seq": transition.seq.0,
        "at": instant::print(transition.at),
        "intent_id": transition.intent_id,
        "row": transition.row.to_string(),
        "from": transition.from.map(AtpState::word),
        "to": transition.to.map(AtpState::word),
        "cause": transition.cause.name(),
    })
}
