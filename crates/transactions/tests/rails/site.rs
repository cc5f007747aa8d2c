//! The rail of a site's own endpoint: its requests, the meaning of its answers, and its callbacks.

use consign_kernel::ids::{Micros, SECOND_US};
use consign_transactions::outcome::RailOutcome;
use consign_transactions::problem::Problem;
use consign_transactions::rail::http::{HttpRail, Options};
use consign_transactions::rail::standard_webhooks::WebhookSecrets;
use consign_transactions::rail::{
    CallbackMessage, Fenced, Rail as _, RailFailure, RailReport, RefundOutcome,
};
use serde_json::{Value, json};

use crate::broken::ENDPOINT_SECRET;
use crate::endpoint::{Endpoint, reply};
use crate::{PATIENCE, charge, now};

const OLD_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn rail(base: &str) -> HttpRail {
    HttpRail::new(Options {
        base: base.to_owned(),
        secrets: WebhookSecrets::new([ENDPOINT_SECRET, OLD_SECRET]).unwrap(),
        timeout: PATIENCE,
    })
    .unwrap()
}

/// A rail whose endpoint always gives the same answer.
async fn saying(answer: Value) -> (Endpoint, HttpRail) {
    let endpoint = Endpoint::start(move |_| reply("200 OK", &answer.to_string())).await;
    let rail = rail(&endpoint.base());
    (endpoint, rail)
}

fn paid(status: &str) -> Value {
    json!({"status": status, "payment_id": "p_1", "amount_cents": 1_500, "currency": "EUR"})
}

#[tokio::test]
async fn the_endpoint_gets_signed_json_under_the_same_name_whenever_the_same_is_asked() {
    let endpoint = Endpoint::start(|_| reply("200 OK", &paid("unconfirmed").to_string())).await;
    let rail = rail(&format!("{}/payments/", endpoint.base()));
    let charge = charge("signed", "card on file");
    rail.prepare(&charge).await;
    rail.prepare(&charge).await;
    rail.refund(&charge, Some("p_1")).await;

    let asked = endpoint.asked();
    let reference = charge.reference.as_str();
    let body: Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(
        body,
        json!({
            "reference": reference,
            "intent_id": "int_abc",
            "transaction_id": "atp_tx_00112233445566778899aabbccddeeff",
            "amount_cents": 1_500,
            "currency": "EUR",
            "capture": "automatic",
            "payment_method": "card on file",
            "action": "pay",
            "summary": "a book",
        })
    );
    assert_eq!(asked[0].path, "/payments/prepare");
    assert_eq!(asked[0].method, "POST");
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
    let id = format!("{reference}:prepare");
    for asked in &asked[..2] {
        assert_eq!(asked.header("webhook-id"), Some(id.as_str()));
        // The receiver verifies with the shared secret: this rail itself accepts the message.
        let message = CallbackMessage {
            headers: &asked.headers,
            body: &asked.body,
            now: now(),
        };
        assert_eq!(rail.parse_callback(message).unwrap().event_id, id);
    }
    let refund: Value = serde_json::from_slice(&asked[2].body).unwrap();
    assert_eq!(refund["payment_id"], "p_1");
    assert_eq!(refund["refund_reference"], format!("{reference}_refund"));
}

#[tokio::test]
async fn every_status_has_its_meaning() {
    use RailOutcome::{Failed, Held, NotFound, Processing, Succeeded, Unconfirmed};
    let charge = charge("status", "card");
    for (status, outcome, fenced) in [
        ("succeeded", Succeeded, Fenced::TooLate),
        ("processing", Processing, Fenced::TooLate),
        ("held", Held, Fenced::Unknown),
        ("unconfirmed", Unconfirmed, Fenced::Unknown),
        ("failed", Failed, Fenced::Cancelled),
        ("not_found", NotFound, Fenced::Cancelled),
    ] {
        let (_endpoint, rail) = saying(paid(status)).await;
        for report in [
            rail.prepare(&charge).await,
            rail.confirm(&charge, Some("p_1")).await,
            rail.capture(&charge, Some("p_1")).await,
            rail.look_up(&charge, Some("p_1")).await,
            rail.look_up(&charge, None).await,
        ] {
            assert_eq!(report.outcome, outcome);
            assert_eq!(report.payment_id.as_deref(), Some("p_1"));
        }
        assert_eq!(rail.cancel(&charge, None).await, fenced, "{status}");
        // A payment with an id must exist.
        let named = rail.cancel(&charge, Some("p_1")).await;
        let forgotten = status == "not_found";
        let expected = if forgotten { Fenced::Unknown } else { fenced };
        assert_eq!(named, expected, "{status}");
    }
}

#[tokio::test]
async fn a_failure_is_told_in_the_words_of_the_endpoint() {
    let failure = json!({"code": "no_funds", "message": "The account is empty."});
    let (_endpoint, rail) = saying(json!({"status": "failed", "failure": failure})).await;
    let charge = charge("failure", "card");
    let expected = RailFailure {
        code: "no_funds".to_owned(),
        message: "The account is empty.".to_owned(),
    };
    let report = rail.confirm(&charge, Some("p_1")).await;
    let failed = RailReport::of(RailOutcome::Failed).with_payment_id("p_1");
    assert_eq!(
        report,
        failed.with_failure("no_funds", "The account is empty.")
    );
    let refunded = rail.refund(&charge, Some("p_1")).await;
    assert_eq!(refunded, RefundOutcome::Refused(expected));
}

#[tokio::test]
async fn a_refund_is_done_under_way_or_unknown() {
    let charge = charge("refund", "card");
    let mut done = paid("succeeded");
    done["refund_id"] = json!("r_1");
    let (_endpoint, rail) = saying(done.clone()).await;
    let refund_id = Some("r_1".to_owned());
    assert_eq!(
        rail.refund(&charge, Some("p_1")).await,
        RefundOutcome::Done { refund_id }
    );
    done["amount_cents"] = json!(1_000);
    let (_endpoint, rail) = saying(done).await;
    assert_eq!(
        rail.refund(&charge, Some("p_1")).await,
        RefundOutcome::Unknown
    );
    for (status, refunded) in [
        ("processing", RefundOutcome::Pending),
        ("not_found", RefundOutcome::Unknown),
        ("held", RefundOutcome::Unknown),
    ] {
        let (_endpoint, rail) = saying(json!({"status": status})).await;
        assert_eq!(rail.refund(&charge, None).await, refunded, "{status}");
    }
}

#[tokio::test]
async fn an_answer_about_other_money_or_another_payment_is_different() {
    let charge = charge("different", "card");
    for (member, value) in [
        ("amount_cents", json!(1_501)),
        ("currency", json!("USD")),
        ("currency", json!("eur")),
        ("payment_id", json!("p_2")),
    ] {
        let mut answer = paid("succeeded");
        answer[member] = value;
        let (_endpoint, rail) = saying(answer).await;
        let report = rail.look_up(&charge, Some("p_1")).await;
        assert_eq!(report.outcome, RailOutcome::Different, "{member}");
    }
    // An answer without an amount is inconclusive.
    for member in ["amount_cents", "currency"] {
        let mut answer = paid("succeeded");
        answer[member] = Value::Null;
        let (_endpoint, rail) = saying(answer).await;
        let report = rail.look_up(&charge, Some("p_1")).await;
        assert_eq!(report.outcome, RailOutcome::Unknown, "{member}");
    }
}

#[tokio::test]
async fn a_message_of_the_endpoint_names_the_payment_or_else_the_reference() {
    let rail = rail("https://pay.example");
    let check = |body: &Value, signed_by: &str, at_s: i64| {
        let body = body.to_string();
        let signature = sign(signed_by, "msg_1", at_s, body.as_bytes());
        let headers = [
            ("webhook-id".to_owned(), "msg_1".to_owned()),
            ("webhook-timestamp".to_owned(), at_s.to_string()),
            ("webhook-signature".to_owned(), signature),
        ];
        rail.parse_callback(CallbackMessage {
            headers: &headers,
            body: body.as_bytes(),
            now: Micros(1_779_710_405 * SECOND_US),
        })
    };
    let at_s = 1_779_710_405;
    let both =
        json!({"type": "payment.updated", "data": {"payment_id": "p_1", "reference": "atp_1"}});
    for secret in [ENDPOINT_SECRET, OLD_SECRET] {
        let hint = check(&both, secret, at_s).unwrap();
        assert_eq!(hint.event_id, "msg_1");
        assert_eq!(hint.about.as_deref(), Some("p_1"));
    }
    let reference = json!({"data": {"reference": "atp_1"}});
    let hint = check(&reference, ENDPOINT_SECRET, at_s).unwrap();
    assert_eq!(hint.about.as_deref(), Some("atp_1"));
    let other = check(&json!({"type": "ping"}), ENDPOINT_SECRET, at_s).unwrap();
    assert_eq!(other.about, None);

    let foreign = "whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";
    assert!(check(&both, foreign, at_s).is_err());
    assert!(check(&both, ENDPOINT_SECRET, at_s - 301).is_err());
    let malformed = check(&json!({"data": 1}), ENDPOINT_SECRET, at_s).unwrap_err();
    assert!(matches!(malformed, Problem::InvalidRequest { .. }));
}

/// Signs as any Standard Webhooks library does.
fn sign(secret: &str, id: &str, at_s: i64, body: &[u8]) -> String {
    use hmac::{KeyInit as _, Mac as _};
    let secret = secret.strip_prefix("whsec_").unwrap();
    let secret = data_encoding::BASE64.decode(secret.as_bytes()).unwrap();
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&secret).unwrap();
    mac.update(format!("{id}.{at_s}.").as_bytes());
    mac.update(body);
    let signature = data_encoding::BASE64.encode(&mac.finalize().into_bytes());
    format!("v1,{signature}")
}
