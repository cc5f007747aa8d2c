//! A request that is signed for one operation is valid for nothing else.

use serde_json::json;

use super::*;
use crate::document::REQUEST_BYTES_MAX;

const SITE: &str = "https://shop.example";
const KEY: &str = "0123456789abcdef";

fn agent() -> AgentSigner {
    AgentSigner::from_seed(&[0x22; 32])
}

fn now() -> Micros {
    instant::parse("2026-05-25T12:00:00Z").unwrap()
}

fn sealed(operation: RequestOperation) -> String {
    let seal = RequestContext {
        operation,
        site: SITE,
        idempotency_key: KEY,
        issued_at: now(),
    };
    let members = json!({"intent_id": "int_abc", "nonce": "n1"});
    seal.sign(&agent(), &members).unwrap()
}

fn read(text: &str, operation: RequestOperation) -> Result<RequestEnvelope, Problem> {
    let document = AtpDocument::read(text.as_bytes(), REQUEST_BYTES_MAX).unwrap();
    RequestEnvelope::read(&document, operation, SITE)
}

fn field(refused: Result<RequestEnvelope, Problem>) -> String {
    match refused {
        Err(Problem::InvalidRequest { field, .. }) => field.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signed_request_is_good_for_its_own_operation_alone() {
    for signed_for in RequestOperation::ALL {
        let text = sealed(signed_for);
        for operation in RequestOperation::ALL {
            let envelope = read(&text, operation);
            if operation == signed_for {
                assert_eq!(envelope.unwrap().check_fresh(now(), 300), Ok(()));
            } else {
                assert_eq!(field(envelope), "type");
            }
        }
    }
}

#[test]
fn a_document_of_another_kind_is_no_request_signed_or_not() {
    for kind in [
        json!("atp.intent.v1"),
        json!("atp.receipt.v1"),
        json!("atp.compensation.v1"),
        json!("atp.execute.v2"),
        json!("atp.execute.v1 "),
        json!("ATP.EXECUTE.V1"),
        json!(""),
        json!(1),
        json!(["atp.execute.v1"]),
    ] {
        let body = json!({"type": kind, "intent_id": "i"});
        for text in [body.to_string(), agent().sign(&body).unwrap()] {
            for operation in RequestOperation::ALL {
                assert_eq!(field(read(&text, operation)), "type", "{text}");
            }
        }
    }
}

#[test]
fn a_signed_request_says_all_that_it_is_for() {
    let whole: Value = serde_json::from_str(&sealed(RequestOperation::Execute)).unwrap();
    for name in ["type", "site", "issued_at", "idempotency_key"] {
        for left_out in [true, false] {
            let mut body = whole.clone();
            body[name] = Value::Null;
            if left_out {
                body.as_object_mut().unwrap().remove(name);
            }
            assert_eq!(
                field(read(&body.to_string(), RequestOperation::Execute)),
                name
            );
            // An unsigned request may omit the envelope.
            body["signature"] = Value::Null;
            assert!(read(&body.to_string(), RequestOperation::Execute).is_ok());
        }
    }
    let bare = json!({"intent_id": "int_abc", "nonce": "n1"});
    let bare = agent().sign(&bare).unwrap();
    assert!(read(&bare, RequestOperation::Authorize).is_ok());
    for operation in [
        RequestOperation::Execute,
        RequestOperation::Compensate,
        RequestOperation::Cancel,
    ] {
        assert_eq!(field(read(&bare, operation)), "type");
    }
}

#[test]
fn what_an_unsigned_request_says_must_fit_as_well() {
    let read = |more: Value| {
        let mut body = json!({"intent_id": "i"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        read(&body.to_string(), RequestOperation::Cancel)
    };
    assert_eq!(
        read(json!({"site": "https://other.example"})),
        Err(Problem::SiteMismatch)
    );
    assert_eq!(
        read(json!({"site": "https://shop.example/"})),
        Err(Problem::SiteMismatch)
    );
    assert_eq!(field(read(json!({"site": 7}))), "site");
    assert_eq!(field(read(json!({"issued_at": "soon"}))), "issued_at");
    assert!(read(json!({"site": SITE, "issued_at": "2026-05-25T12:00:00Z"})).is_ok());
}

#[test]
fn a_request_is_good_for_a_while_before_and_after_its_time() {
    let envelope = read(&sealed(RequestOperation::Cancel), RequestOperation::Cancel).unwrap();
    let at = |seconds: i64| envelope.check_fresh(now().plus(seconds * SECOND_US), 300);
    for seconds in [-300, 0, 300] {
        assert_eq!(at(seconds), Ok(()));
    }
    let stale = Err(Problem::TimestampOutOfWindow { window_s: 300 });
    for seconds in [-301, 301, 86_400, i64::MIN / SECOND_US / 2] {
        assert_eq!(at(seconds), stale);
    }
}

#[test]
fn a_request_that_is_signed_anew_is_the_same_request() {
    let fingerprint = |text: &str| {
        let document = AtpDocument::read(text.as_bytes(), REQUEST_BYTES_MAX).unwrap();
        document.fingerprint()
    };
    let first = sealed(RequestOperation::Execute);
    let mut later: Value = serde_json::from_str(&first).unwrap();
    later["issued_at"] = "2026-05-25T12:07:00Z".into();
    later["signature"] = "another".into();
    assert_eq!(fingerprint(&later.to_string()), fingerprint(&first));
    let mut other = later.clone();
    other["amount_cents"] = 1.into();
    assert_ne!(fingerprint(&other.to_string()), fingerprint(&first));
    // The fingerprint of a body in the older form includes its signature.
    later["type"] = Value::Null;
    let mut even_later = later.clone();
    even_later["issued_at"] = "2026-05-25T12:08:00Z".into();
    assert_ne!(
        fingerprint(&even_later.to_string()),
        fingerprint(&later.to_string())
    );
}
