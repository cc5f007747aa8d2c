//! The Stripe rail against localstripe, which ignores idempotency keys and would refund twice.

use consign_transactions::callback::StripeSecrets;
use consign_transactions::intent::Capture;
use consign_transactions::money::Cents;
use consign_transactions::outcome::RailOutcome;
use consign_transactions::problem::Problem;
use consign_transactions::rail::stripe::{Options, StripeRail};
use consign_transactions::rail::{
    CallbackMessage, Charge, Fenced, Rail as _, RailReport, RefundOutcome,
};

use crate::endpoint::{Endpoint, reply};
use crate::process::{LocalStripe, SECRET};
use crate::{PATIENCE, charge, now};

const VISA: &str = "pm_card_visa";
const DECLINED: &str = "pm_card_chargeCustomerFail";
const WEBHOOK_SECRET: &str = "whsec_of_the_rail";

fn rail(base: &str) -> StripeRail {
    let options = Options {
        base: base.to_owned(),
        secret: SECRET.to_owned(),
        webhook_secrets: StripeSecrets::new([WEBHOOK_SECRET.to_owned()]),
        timeout: PATIENCE,
    };
    let rail = StripeRail::new(options).unwrap();
    rail.accepting(["card".to_owned(), "sepa_debit".to_owned()])
}

fn id(report: &RailReport) -> &str {
    report.payment_id.as_deref().unwrap()
}

fn code(report: &RailReport) -> &str {
    &report.failure.as_ref().unwrap().code
}

/// Prepares a payment and returns its id.
async fn prepared(rail: &StripeRail, charge: &Charge) -> String {
    let report = rail.prepare(charge).await;
    assert_eq!(report.outcome, RailOutcome::Unconfirmed, "{report:?}");
    id(&report).to_owned()
}

#[tokio::test]
async fn at_103_a_payment_at_a_rail_that_ignores_keys_happens_once_and_is_refunded_once() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let charge = charge("once", VISA);
    let id = prepared(&rail, &charge).await;
    assert_eq!(local.charges().await, 0, "preparing moves nothing");
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
    assert_eq!(local.charges().await, 1);
    assert_eq!(rail.cancel(&charge, Some(&id)).await, Fenced::TooLate);

    let refunded = rail.refund(&charge, Some(&id)).await;
    let RefundOutcome::Done { refund_id: Some(_) } = &refunded else {
        panic!("{refunded:?}");
    };
    assert_eq!(rail.refund(&charge, Some(&id)).await, refunded);
    assert_eq!(rail.refund(&charge, None).await, refunded);
    assert_eq!(local.refunds().await, 1);
}

#[tokio::test]
async fn a_refund_pays_back_what_is_left() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let charge = charge("left", VISA);
    let id = prepared(&rail, &charge).await;
    rail.confirm(&charge, Some(&id)).await;
    let by_hand = format!("payment_intent={id}&amount=500");
    local.post("/v1/refunds", &by_hand).await;
    let refunded = rail.refund(&charge, Some(&id)).await;
    assert!(
        matches!(refunded, RefundOutcome::Done { .. }),
        "{refunded:?}"
    );
    let refunds = local.get("/v1/refunds").await;
    let amounts = refunds["data"].as_array().unwrap().iter();
    let amounts: u64 = amounts
        .map(|refund| refund["amount"].as_u64().unwrap())
        .sum();
    assert_eq!(amounts, 1_500);
}

#[tokio::test]
async fn a_decline_tells_why_and_a_fenced_payment_stays_dead() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let charge = charge("declined", DECLINED);
    let id = prepared(&rail, &charge).await;
    let declined = rail.confirm(&charge, Some(&id)).await;
    assert_eq!(declined.outcome, RailOutcome::Failed);
    assert_eq!(code(&declined), "card_declined");
    let message = &declined.failure.as_ref().unwrap().message;
    assert_eq!(message, "Your card was declined.");
    for _ in 0..2 {
        assert_eq!(rail.cancel(&charge, Some(&id)).await, Fenced::Cancelled);
    }
    let after = rail.confirm(&charge, Some(&id)).await;
    assert_eq!(after.outcome, RailOutcome::Failed);
    assert_eq!(local.charges().await, 0);
}

#[tokio::test]
async fn a_payment_method_that_does_not_exist_fails_before_anything_is_made() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let unknown = rail.prepare(&charge("unknown", "pm_nobody_has")).await;
    assert_eq!(unknown.outcome, RailOutcome::Failed, "{unknown:?}");
    let mut charge = charge("none", VISA);
    charge.payment_method = None;
    let none = rail.prepare(&charge).await;
    assert_eq!(code(&none), "payment_method_required");
    let found = rail.look_up(&charge, None).await;
    assert_eq!(found, RailReport::of(RailOutcome::NotFound));
    assert_eq!(rail.cancel(&charge, None).await, Fenced::Cancelled);
}

/// As after a crash between creating a payment and storing its id: the rail ignores keys, so there are
/// two.
#[tokio::test]
async fn payments_that_nobody_named_are_found_not_confirmed_and_cancelled_together() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let charge = charge("orphans", VISA);
    let made = [
        prepared(&rail, &charge).await,
        prepared(&rail, &charge).await,
    ];
    assert_ne!(made[0], made[1]);
    let found = rail.look_up(&charge, None).await;
    assert_eq!(found.outcome, RailOutcome::Unconfirmed);
    assert!(made.iter().any(|id| Some(id) == found.payment_id.as_ref()));
    // Its id must be stored before money may move.
    assert_eq!(rail.confirm(&charge, None).await, found);
    assert_eq!(rail.look_up(&charge, None).await, found);
    assert_eq!(local.charges().await, 0);

    assert_eq!(
        rail.cancel(&charge, Some(&made[1])).await,
        Fenced::Cancelled
    );
    for id in &made {
        let shown = local.get(&format!("/v1/payment_intents/{id}")).await;
        assert_eq!(shown["status"], "canceled");
        let dead = rail.confirm(&charge, Some(id)).await;
        assert_eq!(dead.outcome, RailOutcome::Failed);
    }
    assert_eq!(local.charges().await, 0);
}

#[tokio::test]
async fn a_hold_is_captured_or_released() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let mut captured = charge("captured", VISA);
    captured.capture = Capture::Manual;
    let mut released = charge("released", VISA);
    released.capture = Capture::Manual;

    let id = prepared(&rail, &captured).await;
    let held = rail.confirm(&captured, Some(&id)).await;
    assert_eq!(held.outcome, RailOutcome::Held);
    assert_eq!(local.charges().await, 0);
    for _ in 0..2 {
        let taken = rail.capture(&captured, Some(&id)).await;
        assert_eq!(taken.outcome, RailOutcome::Succeeded);
    }
    assert_eq!(local.charges().await, 1);

    let id = prepared(&rail, &released).await;
    rail.confirm(&released, Some(&id)).await;
    assert_eq!(rail.cancel(&released, Some(&id)).await, Fenced::Cancelled);
    let found = rail.look_up(&released, Some(&id)).await;
    assert_eq!(found.outcome, RailOutcome::Failed);
    assert_eq!(local.charges().await, 1);
}

#[tokio::test]
async fn a_bank_debit_takes_its_time_and_fails_later() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let debit = "type=sepa_debit&sepa_debit[iban]=DE62370400440532013001";
    let method = local.post("/v1/payment_methods", debit).await;
    let charge = charge("debit", method["id"].as_str().unwrap());
    let id = prepared(&rail, &charge).await;
    let begun = rail.confirm(&charge, Some(&id)).await;
    assert_eq!(begun.outcome, RailOutcome::Processing);
    let mut seen = begun;
    while seen.outcome == RailOutcome::Processing {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        seen = rail.look_up(&charge, Some(&id)).await;
    }
    assert_eq!(seen.outcome, RailOutcome::Failed);
    assert_eq!(code(&seen), "card_declined");
}

#[tokio::test]
async fn a_payment_that_wants_its_payer_fails_and_can_be_fenced_off() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let card = "type=card&card[number]=4000002500003155&card[exp_month]=12&card[exp_year]=2030&card[cvc]=123";
    let method = local.post("/v1/payment_methods", card).await;
    let charge = charge("payer", method["id"].as_str().unwrap());
    let id = prepared(&rail, &charge).await;
    let asked = rail.confirm(&charge, Some(&id)).await;
    assert_eq!(asked.outcome, RailOutcome::Failed);
    assert_eq!(code(&asked), "authentication_required");
    assert_eq!(rail.cancel(&charge, Some(&id)).await, Fenced::Cancelled);
    assert_eq!(local.charges().await, 0);
}

#[tokio::test]
async fn at_100_a_payment_of_another_amount_is_reported_as_different() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let paid = charge("amount", VISA);
    let id = prepared(&rail, &paid).await;
    rail.confirm(&paid, Some(&id)).await;
    let mut meant = paid.clone();
    meant.amount = Cents::new(1_501).unwrap();
    for known in [Some(id.as_str()), None] {
        let found = rail.look_up(&meant, known).await;
        assert_eq!(found.outcome, RailOutcome::Different, "{found:?}");
    }
    // A payment of another transaction does not count either.
    let other = charge("another", VISA);
    let found = rail.look_up(&other, Some(&id)).await;
    assert_eq!(found.outcome, RailOutcome::Different);
}

#[tokio::test]
async fn what_was_paid_is_known_after_the_rail_was_killed_and_unknown_while_it_is_gone() {
    let mut local = LocalStripe::start();
    let first = rail(local.base());
    let charge = charge("killed", VISA);
    let id = prepared(&first, &charge).await;
    first.confirm(&charge, Some(&id)).await;
    local.kill_and_restart();
    let second = rail(local.base());
    let found = second.look_up(&charge, None).await;
    assert_eq!(
        found,
        RailReport::of(RailOutcome::Succeeded).with_payment_id(&id)
    );
    assert_eq!(local.charges().await, 1);
    local.kill();
    for report in [
        second.prepare(&charge).await,
        second.confirm(&charge, Some(&id)).await,
        second.look_up(&charge, Some(&id)).await,
        second.look_up(&charge, None).await,
    ] {
        assert_eq!(report.outcome, RailOutcome::Unknown);
    }
    assert_eq!(second.cancel(&charge, Some(&id)).await, Fenced::Unknown);
    assert_eq!(
        second.refund(&charge, Some(&id)).await,
        RefundOutcome::Unknown
    );
}

#[tokio::test]
async fn a_reference_is_found_beyond_the_first_page() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    for index in 0..101 {
        prepared(&rail, &charge(&format!("page-{index}"), VISA)).await;
    }
    let last = charge("page-last", VISA);
    let id = prepared(&rail, &last).await;
    let found = rail.look_up(&last, None).await;
    assert_eq!(
        found,
        RailReport::of(RailOutcome::Unconfirmed).with_payment_id(id)
    );
}

#[tokio::test]
async fn a_message_of_the_rail_names_the_payment() {
    let local = LocalStripe::start();
    let rail = rail(local.base());
    let listener = Endpoint::start(|_| reply("200 OK", "{}")).await;
    let webhook = format!("url={}/callback&secret={WEBHOOK_SECRET}", listener.base());
    local.post("/_config/webhooks/ours", &webhook).await;
    let charge = charge("message", VISA);
    let id = prepared(&rail, &charge).await;
    rail.confirm(&charge, Some(&id)).await;
    let heard = loop {
        if let Some(heard) = listener.asked().first().cloned() {
            break heard;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    let message = CallbackMessage {
        headers: &heard.headers,
        body: &heard.body,
        now: now(),
    };
    let hint = rail.parse_callback(message).unwrap();
    assert!(hint.event_id.starts_with("evt_"));
    assert_eq!(hint.about, Some(id));

    let forged = CallbackMessage {
        body: &heard.body[1..],
        ..message
    };
    let unsigned = CallbackMessage {
        headers: &[],
        ..message
    };
    for message in [forged, unsigned] {
        let refused = rail.parse_callback(message).unwrap_err();
        assert!(matches!(refused, Problem::CallbackRefused { .. }));
    }
}
