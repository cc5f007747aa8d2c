//! Each body: its required members, and the checks against its intent.

use serde_json::{Value, json};

use super::*;
use crate::document::{SiteSigner, VERIFY_BYTES_MAX};
use crate::http::ProblemResponse;

fn body(value: &Value) -> AtpDocument {
    AtpDocument::read(value.to_string().as_bytes(), VERIFY_BYTES_MAX).unwrap()
}

fn agent() -> SiteSigner {
    SiteSigner::from_seed(&[0x22; 32])
}

fn signed(signer: &SiteSigner, value: &Value) -> AtpDocument {
    AtpDocument::read(
        signer.sign_as("signature", value).as_bytes(),
        VERIFY_BYTES_MAX,
    )
    .unwrap()
}

fn intent_value() -> Value {
    json!({
        "type": "atp.intent.v1", "intent_id": "int_abc", "site": "https://shop.example",
        "agent_key": agent().public().to_string(), "purpose": "Buy a book", "scope": {"actions": ["pay"]},
        "nonce": "n1", "issued_at": "2026-05-25T12:00:00.000Z", "expires_at": "2026-05-25T12:10:00.000Z",
        "amount_cents": 1500,
    })
}

fn intent() -> SignedIntent {
    SignedIntent::read(signed(&agent(), &intent_value())).unwrap()
}

fn name<T>(result: Result<T, Problem>) -> &'static str {
    let name = |problem| ProblemResponse(problem).name();
    result.err().map_or("none", name)
}

#[test]
fn a_body_with_a_type_is_a_whole_intent() {
    let whole = Authorize::read(&signed(&agent(), &intent_value())).unwrap();
    assert!(matches!(whole, Authorize::Whole(_)));
    assert_eq!(whole.intent_id(), "int_abc");
    assert_eq!(whole.check_nonce(&intent()), Ok(()));
    let wrong = json!({"type": "atp.receipt.v1", "intent_id": "int_abc", "nonce": "n1"});
    assert_eq!(name(Authorize::read(&body(&wrong))), "invalid_request");
}

#[test]
fn a_known_intent_is_authorized_with_its_own_nonce() {
    let read = |value: Value| Authorize::read(&body(&value));
    let short = read(json!({"intent_id": "int_abc", "nonce": "n1"})).unwrap();
    assert_eq!(
        (short.intent_id(), short.check_nonce(&intent())),
        ("int_abc", Ok(()))
    );
    let other = read(json!({"intent_id": "int_abc", "nonce": "n2"})).unwrap();
    assert_eq!(name(other.check_nonce(&intent())), "nonce_mismatch");
    assert_eq!(
        name(read(json!({"intent_id": "int_abc"}))),
        "invalid_request"
    );
    assert_eq!(name(read(json!({"nonce": "n1"}))), "invalid_request");
}

#[test]
fn an_execution_keeps_to_its_intent() {
    let read = |value: Value| Execute::read(&body(&value)).unwrap();
    let bare = read(json!({"intent_id": "int_abc"}));
    assert_eq!(bare.amount(&intent()).unwrap().get(), 1_500);
    assert_eq!(
        (bare.check_currency(&intent()), bare.check_action(&intent())),
        (Ok(()), Ok(()))
    );
    let full = read(
        json!({"intent_id": "int_abc", "amount_cents": 7, "currency": "EUR", "action": "pay"}),
    );
    assert_eq!(full.amount(&intent()).unwrap().get(), 7);
    assert_eq!(
        (full.check_currency(&intent()), full.check_action(&intent())),
        (Ok(()), Ok(()))
    );
    let other = read(json!({"intent_id": "int_abc", "currency": "USD", "action": "book"}));
    assert_eq!(name(other.check_currency(&intent())), "currency_mismatch");
    assert_eq!(name(other.check_action(&intent())), "scope_violation");

    assert_eq!(bare.check_rail(&intent(), "stripe"), Ok(()));
    for rail in [json!("http"), json!({"name": "http"})] {
        let named = read(json!({"intent_id": "int_abc", "rail": rail}));
        assert_eq!(named.check_rail(&intent(), "http"), Ok(()));
        assert_eq!(name(named.check_rail(&intent(), "stripe")), "rail_mismatch");
    }
    let mut choosy = intent_value();
    choosy["rail"] = json!({"name": "stripe"});
    let choosy = SignedIntent::read(body(&choosy)).unwrap();
    assert_eq!(bare.check_rail(&choosy, "stripe"), Ok(()));
    assert_eq!(name(bare.check_rail(&choosy, "null")), "rail_mismatch");

    let mut open = intent_value();
    open["amount_cents"] = json!(null);
    let open = SignedIntent::read(body(&open)).unwrap();
    assert_eq!(name(bare.amount(&open)), "invalid_request");
    for bad in [
        json!({}),
        json!({"intent_id": "i", "amount_cents": -1}),
        json!({"intent_id": "i", "metadata": 1}),
        json!({"intent_id": "i", "rail": 1}),
        json!({"intent_id": "i", "rail": {}}),
    ] {
        assert_eq!(name(Execute::read(&body(&bad))), "invalid_request", "{bad}");
    }
}

#[test]
fn a_compensation_has_a_reason_and_is_for_everything() {
    let read = |value: Value| Compensate::read(&body(&value));
    let paid = Cents::new(1_500).unwrap();
    let whole = read(json!({"intent_id": "i", "reason": "r"})).unwrap();
    assert_eq!(whole.check_amount(paid), Ok(()));
    let same = read(json!({"intent_id": "i", "reason": "r", "amount_cents": 1500})).unwrap();
    assert_eq!(same.check_amount(paid), Ok(()));
    let part = read(json!({"intent_id": "i", "reason": "r", "amount_cents": 1499})).unwrap();
    assert_eq!(
        name(part.check_amount(paid)),
        "partial_compensation_unsupported"
    );
    assert!(read(json!({"intent_id": "i", "reason": "r".repeat(1_000)})).is_ok());
    for reason in [json!(null), json!(""), json!("r".repeat(1_001)), json!(1)] {
        assert_eq!(
            name(read(json!({"intent_id": "i", "reason": reason}))),
            "invalid_request"
        );
    }
}

#[test]
fn a_cancellation_may_give_a_reason() {
    let read = |value: Value| Cancel::read(&body(&value));
    assert_eq!(read(json!({"intent_id": "i"})).unwrap().reason, None);
    assert!(read(json!({"intent_id": "i", "reason": "r".repeat(500)})).is_ok());
    assert_eq!(
        name(read(json!({"intent_id": "i", "reason": "r".repeat(501)}))),
        "invalid_request"
    );
}

#[test]
fn a_receipt_is_verified_by_itself_wrapped_or_by_id() {
    let read = |value: Value| Verify::read(&body(&value));
    let document = |value: Value| match read(value.clone()).unwrap() {
        Verify::Document(document) => String::from_utf8(document.sent().to_vec()).unwrap(),
        Verify::Id(id) => panic!("{value} is the id {id}"),
    };
    let receipt = json!({"receipt_id": "atp_rcpt_1", "signature": "x"});
    assert_eq!(document(receipt.clone()), receipt.to_string());
    assert_eq!(document(json!({ "receipt": receipt })), receipt.to_string());
    let unsigned = json!({"receipt_id": "atp_rcpt_1", "type": "atp.receipt.v1"});
    assert_eq!(document(unsigned.clone()), unsigned.to_string());
    assert_eq!(document(json!({})), "{}");
    for value in [
        json!({"receipt_id": "atp_rcpt_1"}),
        json!({"id": "atp_rcpt_1"}),
    ] {
        assert!(matches!(read(value).unwrap(), Verify::Id(id) if id == "atp_rcpt_1"));
    }
    for value in [
        json!({"receipt": "atp_rcpt_1"}),
        json!({"receipt_id": 7}),
        json!({"id": ""}),
    ] {
        assert_eq!(name(read(value)), "invalid_request");
    }
}

#[test]
fn whoever_signs_a_request_must_be_the_agent() {
    let request = json!({"intent_id": "int_abc"});
    let by_agent = signed(&agent(), &request);
    let by_other = signed(&SiteSigner::from_seed(&[9; 32]), &request);
    for must in [false, true] {
        assert_eq!(intent().check_request(&by_agent, must), Ok(()));
        assert_eq!(
            name(intent().check_request(&by_other, must)),
            "invalid_signature"
        );
    }
    assert_eq!(intent().check_request(&body(&request), false), Ok(()));
    assert_eq!(
        name(intent().check_request(&body(&request), true)),
        "invalid_signature"
    );
}
