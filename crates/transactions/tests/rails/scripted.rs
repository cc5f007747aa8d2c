//! The Stripe rail against answers that no mock server gives, and the requests it sends.

use std::sync::atomic::{AtomicUsize, Ordering};

use consign_transactions::callback::StripeSecrets;
use consign_transactions::outcome::RailOutcome;
use consign_transactions::rail::stripe::{Options, StripeRail};
use consign_transactions::rail::{Charge, Fenced, Rail as _, RefundOutcome};
use serde_json::{Value, json};

use crate::endpoint::{Answer, Asked, Endpoint, reply};
use crate::{PATIENCE, charge};

fn rail(endpoint: &Endpoint) -> StripeRail {
    StripeRail::new(Options {
        base: endpoint.base(),
        secret: "sk_test_secret".to_owned(),
        webhook_secrets: StripeSecrets::new([]),
        timeout: PATIENCE,
    })
    .unwrap()
}

fn ours() -> Charge {
    charge("scripted", "pm_1")
}

fn payment(status: &str) -> Value {
    json!({
        "id": "pi_1", "status": status, "amount": 1_500, "currency": "eur",
        "metadata": {"atp_ref": ours().reference.as_str()},
    })
}

fn ok(body: &Value) -> Answer {
    reply("200 OK", &body.to_string())
}

fn listed(items: &[Value]) -> Answer {
    ok(&json!({"data": items, "has_more": false}))
}

fn error(status: &str, error: &Value) -> Answer {
    reply(status, &json!({"error": error}).to_string())
}

fn failed() -> Answer {
    error("500 Internal Server Error", &json!({"type": "api_error"}))
}

#[tokio::test]
async fn at_099_the_rail_gets_the_reference_as_metadata_and_as_idempotency_key() {
    let endpoint = Endpoint::start(|asked| {
        if asked.method == "GET" {
            listed(&[])
        } else if asked.path == "/v1/refunds" {
            ok(&json!({"id": "re_1", "amount": 1_500, "status": "succeeded"}))
        } else if asked.path.ends_with("/cancel") {
            ok(&payment("canceled"))
        } else if asked.path.ends_with("/confirm") || asked.path.ends_with("/capture") {
            ok(&payment("succeeded"))
        } else {
            ok(&payment("requires_confirmation"))
        }
    })
    .await;
    let (rail, charge) = (rail(&endpoint), ours());
    let id = Some("pi_1");
    rail.prepare(&charge).await;
    rail.confirm(&charge, id).await;
    rail.capture(&charge, id).await;
    assert_eq!(rail.cancel(&charge, id).await, Fenced::Cancelled);
    rail.refund(&charge, id).await;

    let asked = endpoint.asked();
    let posts: Vec<&Asked> = asked
        .iter()
        .filter(|asked| asked.method == "POST")
        .collect();
    let reference = charge.reference.as_str();
    let keys: Vec<Option<&str>> = posts
        .iter()
        .map(|asked| asked.header("idempotency-key"))
        .collect();
    let expected = ["pi", "confirm", "capture"].map(|suffix| format!("{reference}:{suffix}"));
    let refund = format!("{reference}:refund");
    assert_eq!(
        keys,
        [
            Some(expected[0].as_str()),
            Some(&expected[1]),
            Some(&expected[2]),
            // A fence is sent without an idempotency key.
            None,
            Some(&refund),
        ]
    );
    assert_eq!(
        posts[0].text(),
        format!(
            "amount=1500&currency=eur&metadata%5Batp_ref%5D={reference}&metadata%5Bintent_id%5D=int_abc&\
             payment_method=pm_1&capture_method=automatic&payment_method_types%5B%5D=card"
        )
    );
    assert!(
        posts[4]
            .text()
            .contains(&format!("metadata%5Batp_ref%5D={reference}_refund"))
    );
    for asked in &asked {
        assert_eq!(asked.header("authorization"), Some("Bearer sk_test_secret"));
    }
}

#[tokio::test]
async fn a_failure_that_is_repeated_for_a_day_is_resolved_by_looking() {
    for (listed_payments, outcome) in [
        (
            vec![payment("requires_confirmation")],
            RailOutcome::Unconfirmed,
        ),
        (vec![payment("succeeded")], RailOutcome::Succeeded),
        // The payment may still appear.
        (vec![], RailOutcome::Unknown),
    ] {
        let endpoint = Endpoint::start(move |asked| match asked.method.as_str() {
            "GET" => listed(&listed_payments),
            _ => failed(),
        })
        .await;
        assert_eq!(rail(&endpoint).prepare(&ours()).await.outcome, outcome);
    }
}

#[tokio::test]
async fn a_confirmation_that_failed_somehow_counts_as_what_the_payment_shows() {
    use RailOutcome::{Failed, Held, Processing, Succeeded, Unknown};
    let conflict = || error("409 Conflict", &json!({"type": "idempotency_error"}));
    let reused = || error("400 Bad Request", &json!({"type": "idempotency_error"}));
    let limit = || error("429 Too Many Requests", &json!({"code": "rate_limit"}));
    let denied = || {
        error(
            "401 Unauthorized",
            &json!({"type": "invalid_request_error"}),
        )
    };
    let answers: [fn() -> Answer; 5] = [failed, conflict, reused, limit, denied];
    for answer in answers {
        for (status, outcome) in [
            ("succeeded", Succeeded),
            ("processing", Processing),
            ("requires_capture", Held),
            ("requires_payment_method", Failed),
            // The call may still take effect.
            ("requires_confirmation", Unknown),
        ] {
            let endpoint = Endpoint::start(move |asked| match asked.method.as_str() {
                "GET" => ok(&payment(status)),
                _ => answer(),
            })
            .await;
            let report = rail(&endpoint).confirm(&ours(), Some("pi_1")).await;
            assert_eq!(report.outcome, outcome, "{status}");
            assert_eq!(report.payment_id.as_deref(), Some("pi_1"));
        }
    }
}

#[tokio::test]
async fn a_confirmation_that_is_refused_for_good_fails_with_the_reason() {
    let endpoint = Endpoint::start(|asked| match asked.method.as_str() {
        "GET" => ok(&payment("requires_confirmation")),
        _ => error(
            "400 Bad Request",
            &json!({"type": "invalid_request_error", "message": "Attach it first."}),
        ),
    })
    .await;
    let report = rail(&endpoint).confirm(&ours(), Some("pi_1")).await;
    assert_eq!(report.outcome, RailOutcome::Failed);
    let failure = report.failure.unwrap();
    assert_eq!(failure.code, "invalid_request_error");
    assert_eq!(failure.message, "Attach it first.");
}

#[tokio::test]
async fn a_hold_that_cannot_be_captured_now_is_not_given_up() {
    let endpoint = Endpoint::start(|asked| match asked.method.as_str() {
        "GET" => ok(&payment("requires_capture")),
        _ => error("400 Bad Request", &json!({"type": "invalid_request_error"})),
    })
    .await;
    let report = rail(&endpoint).capture(&ours(), Some("pi_1")).await;
    assert_eq!(report.outcome, RailOutcome::Unknown);
}

#[tokio::test]
async fn a_fence_holds_only_if_the_rail_says_so() {
    for (status, fenced) in [
        ("canceled", Fenced::Cancelled),
        ("succeeded", Fenced::TooLate),
        ("processing", Fenced::TooLate),
        ("requires_confirmation", Fenced::Unknown),
        ("requires_capture", Fenced::Unknown),
    ] {
        let endpoint = Endpoint::start(move |asked| {
            if asked.method == "POST" {
                failed()
            } else if asked.path.contains('?') {
                listed(&[])
            } else {
                ok(&payment(status))
            }
        })
        .await;
        let rail = rail(&endpoint);
        assert_eq!(rail.cancel(&ours(), Some("pi_1")).await, fenced, "{status}");
    }
}

#[tokio::test]
async fn a_refund_whose_answer_was_lost_is_found_and_not_repeated() {
    static LISTED: AtomicUsize = AtomicUsize::new(0);
    let endpoint = Endpoint::start(|asked| match asked.method.as_str() {
        "GET" if LISTED.fetch_add(1, Ordering::SeqCst) == 0 => listed(&[]),
        "GET" => listed(&[json!({"id": "re_1", "amount": 1_500, "status": "succeeded"})]),
        _ => Answer::Bytes(Vec::new()),
    })
    .await;
    let rail = rail(&endpoint);
    let done = RefundOutcome::Done {
        refund_id: Some("re_1".to_owned()),
    };
    assert_eq!(rail.refund(&ours(), Some("pi_1")).await, done);
    assert_eq!(rail.refund(&ours(), Some("pi_1")).await, done);
    let asked = endpoint.asked();
    let posts = asked.iter().filter(|asked| asked.method == "POST");
    assert_eq!(posts.count(), 1);
}

#[tokio::test]
async fn a_refund_that_lacks_funds_today_is_not_refused() {
    for (complaint, refused) in [
        (
            json!({"type": "invalid_request_error", "code": "balance_insufficient"}),
            false,
        ),
        (
            json!({"type": "invalid_request_error", "code": "charge_disputed"}),
            true,
        ),
    ] {
        let endpoint = Endpoint::start(move |asked| match asked.method.as_str() {
            "GET" => listed(&[]),
            _ => error("400 Bad Request", &complaint),
        })
        .await;
        let told = rail(&endpoint).refund(&ours(), Some("pi_1")).await;
        assert_eq!(
            matches!(told, RefundOutcome::Refused(_)),
            refused,
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn a_listing_ends_though_the_rail_says_that_there_is_more() {
    let endpoint = Endpoint::start(|_| {
        let foreign = json!({"id": "pi_x", "status": "succeeded", "amount": 1, "currency": "usd"});
        ok(&json!({"data": [foreign], "has_more": true}))
    })
    .await;
    let report = rail(&endpoint).look_up(&ours(), None).await;
    assert_eq!(report.outcome, RailOutcome::NotFound);
    assert!(endpoint.asked().len() <= 20);
}
