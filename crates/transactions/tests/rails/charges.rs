//! The rail for Stripe's older charges against stripe-stateful-mock, which honours idempotency
//! keys.

use consign_client::Method;
use consign_transactions::callback::StripeSecrets;
use consign_transactions::intent::Capture;
use consign_transactions::money::Cents;
use consign_transactions::outcome::RailOutcome;
use consign_transactions::rail::stripe::Options;
use consign_transactions::rail::{
    Charge, ChargesRail, Fenced, Rail as _, RailReport, RefundOutcome,
};
use serde_json::Value;

use crate::process::{SECRET, StandIn};
use crate::{PATIENCE, charge};

const VISA: &str = "tok_visa";

fn rail(mock: &StandIn) -> ChargesRail {
    let options = Options {
        base: mock.base.clone(),
        secret: SECRET.to_owned(),
        webhook_secrets: StripeSecrets::new([]),
        timeout: PATIENCE,
    };
    ChargesRail::new(options).unwrap()
}

async fn prepared(rail: &ChargesRail, charge: &Charge) -> String {
    let report = rail.prepare(charge).await;
    assert_eq!(report.outcome, RailOutcome::Unconfirmed, "{report:?}");
    report.payment_id.unwrap()
}

async fn listed(mock: &StandIn, what: &str) -> Vec<Value> {
    let list = mock.ask(Method::GET, &format!("/v1/{what}"), "").await;
    list["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn at_103_a_payment_at_a_rail_that_honours_keys_happens_once_and_is_refunded_once() {
    let mock = StandIn::stateful_mock();
    let rail = rail(&mock);
    let charge = charge("once", VISA);
    let id = prepared(&rail, &charge).await;
    // The rail recognises the key and returns the first charge again.
    assert_eq!(prepared(&rail, &charge).await, id);
    assert_eq!(listed(&mock, "charges").await.len(), 1);
    for _ in 0..3 {
        let confirmed = rail.confirm(&charge, Some(&id)).await;
        assert_eq!(
            confirmed,
            RailReport::of(RailOutcome::Succeeded).with_payment_id(&id)
        );
    }
    for known in [Some(id.as_str()), None] {
        let found = rail.look_up(&charge, known).await;
        assert_eq!(
            found,
            RailReport::of(RailOutcome::Succeeded).with_payment_id(&id)
        );
    }
    assert_eq!(rail.cancel(&charge, Some(&id)).await, Fenced::TooLate);
    assert_eq!(listed(&mock, "refunds").await.len(), 0);

    let refunded = rail.refund(&charge, Some(&id)).await;
    assert!(
        matches!(refunded, RefundOutcome::Done { .. }),
        "{refunded:?}"
    );
    assert_eq!(rail.refund(&charge, None).await, refunded);
    assert_eq!(listed(&mock, "refunds").await.len(), 1);
    let charges = listed(&mock, "charges").await;
    assert_eq!(charges.len(), 1);
    assert_eq!(charges[0]["amount_captured"], 1_500);
}

#[tokio::test]
async fn a_decline_and_a_released_hold_end_without_a_charge() {
    let mock = StandIn::stateful_mock();
    let rail = rail(&mock);
    let declined = charge("declined", "tok_chargeDeclinedInsufficientFunds");
    let report = rail.prepare(&declined).await;
    assert_eq!(report.outcome, RailOutcome::Failed);
    let failure = report.failure.unwrap();
    assert_eq!(failure.code, "card_declined");
    assert_eq!(failure.message, "Your card has insufficient funds.");
    assert_eq!(rail.cancel(&declined, None).await, Fenced::Cancelled);

    let released = charge("released", VISA);
    let id = prepared(&rail, &released).await;
    for _ in 0..2 {
        assert_eq!(rail.cancel(&released, Some(&id)).await, Fenced::Cancelled);
    }
    let found = rail.look_up(&released, None).await;
    assert_eq!(found.outcome, RailOutcome::Failed);
    let charges = listed(&mock, "charges").await;
    assert!(charges.iter().all(|charge| charge["amount_captured"] == 0));
}

#[tokio::test]
async fn a_rail_that_fails_or_is_busy_leaves_the_payment_unknown() {
    let mock = StandIn::stateful_mock();
    let rail = rail(&mock);
    for token in ["tok_500", "tok_429"] {
        let charge = charge(token, token);
        for _ in 0..2 {
            let report = rail.prepare(&charge).await;
            assert_eq!(report.outcome, RailOutcome::Unknown, "{token}");
        }
    }
    // The rail refuses another request with a used key; the charge is looked up instead.
    let first = charge("reused", VISA);
    let id = prepared(&rail, &first).await;
    let mut second = first.clone();
    second.amount = Cents::new(1_600).unwrap();
    let report = rail.prepare(&second).await;
    assert_eq!(report.outcome, RailOutcome::Different);
    assert_eq!(report.payment_id, Some(id));
}

#[tokio::test]
async fn a_hold_waits_for_the_site_if_the_intent_says_so() {
    let mock = StandIn::stateful_mock();
    let rail = rail(&mock);
    let mut charge = charge("manual", VISA);
    charge.capture = Capture::Manual;
    let held = rail.prepare(&charge).await;
    assert_eq!(held.outcome, RailOutcome::Held);
    let id = held.payment_id.as_deref();
    assert_eq!(rail.confirm(&charge, id).await, held);
    let taken = rail.capture(&charge, id).await;
    assert_eq!(taken.outcome, RailOutcome::Succeeded);
}
