//! Which values are frames, and what is kept of them.

use super::*;
use crate::text::parse;

const INTENT: &str = r#"{"v":"1","from":"a@beam.directory","to":"b@beam.directory","intent":"x.y","payload":{"b":1,"a":2},"nonce":"n","timestamp":"t","signature":"s","hint":{"z":1}}"#;

fn value(text: &str) -> BeamValue {
    parse(text.as_bytes()).unwrap()
}

fn intent(text: &str) -> Result<IntentFrame, FrameError> {
    IntentFrame::parse(value(text))
}

/// The intent with one field replaced, or removed.
fn changed(name: &str, replacement: Option<&str>) -> Result<IntentFrame, FrameError> {
    let mut fields = intent(INTENT).unwrap().fields().clone();
    fields.remove(name);
    if let Some(text) = replacement {
        fields.insert(name, value(text));
    }
    IntentFrame::parse(fields.into())
}

#[test]
fn an_intent_keeps_all_fields_that_were_sent() {
    let frame = intent(INTENT).unwrap();
    assert_eq!(frame.from(), "a@beam.directory");
    assert_eq!(frame.to(), "b@beam.directory");
    assert_eq!(frame.intent(), "x.y");
    assert_eq!(frame.nonce(), "n");
    assert_eq!(frame.timestamp(), "t");
    assert_eq!(frame.signature(), Some("s"));
    let payload = BeamValue::from(frame.payload().clone());
    assert_eq!(payload.to_text(), r#"{"b":1,"a":2}"#);
    assert_eq!(frame.to_value().to_text(), INTENT);
}

#[test]
fn the_http_route_drops_unknown_fields_and_sets_the_version() {
    let frame = changed("v", Some("7")).unwrap().without_unknown_fields();
    assert_eq!(
        frame.to_value().to_text(),
        r#"{"v":"1","intent":"x.y","from":"a@beam.directory","to":"b@beam.directory","payload":{"b":1,"a":2},"nonce":"n","timestamp":"t","signature":"s"}"#
    );
    assert_eq!(IntentFrame::parse(frame.to_value()), Ok(frame));
    let unsigned = changed("signature", None).unwrap();
    assert_eq!(unsigned.without_unknown_fields().signature(), None);
}

#[test]
fn be_067_params_are_read_where_there_is_no_payload() {
    for payload in [None, Some("null")] {
        let mut fields = changed("hint", None).unwrap().fields().clone();
        fields.remove("payload");
        if let Some(payload) = payload {
            fields.insert("payload", value(payload));
        }
        fields.insert("params", value(r#"{"sku":"INV-240"}"#));
        let frame = IntentFrame::parse(fields.into()).unwrap();
        for name in ["payload", "params"] {
            let object = frame.fields().get(name).and_then(BeamValue::as_object);
            assert_eq!(object, Some(frame.payload()), "{name}");
        }
        assert!(frame.payload().contains("sku"));
    }
    // A payload counts even if it is empty, and one of another type is not replaced.
    let both = |payload: &str| {
        let mut fields = changed("payload", Some(payload))?.fields().clone();
        fields.insert("params", value(r#"{"a":1}"#));
        IntentFrame::parse(fields.into())
    };
    assert!(both("{}").unwrap().payload().is_empty());
    assert_eq!(both("7"), Err(FrameError::PayloadNotAnObject));
}

#[test]
fn malformed_intents_are_refused_with_the_text_of_the_protocol() {
    for text in ["null", "[]", "\"frame\"", "7"] {
        assert_eq!(intent(text), Err(FrameError::NotAnObject), "{text}");
    }
    for (name, values, expected) in [
        (
            "from",
            &[None, Some("7"), Some("\"\"")][..],
            "from, to and intent are required",
        ),
        (
            "to",
            &[None, Some("null"), Some("\"\"")],
            "from, to and intent are required",
        ),
        (
            "intent",
            &[None, Some("{}"), Some("\"\"")],
            "from, to and intent are required",
        ),
        (
            "payload",
            &[None, Some("null"), Some("[]"), Some("\"x\"")],
            "payload must be an object",
        ),
        (
            "nonce",
            &[None, Some("7"), Some("\"\""), Some(r#""\ud800""#)],
            "nonce is required",
        ),
        (
            "timestamp",
            &[None, Some("7"), Some("\"\"")],
            "timestamp is required",
        ),
        (
            "signature",
            &[Some("null"), Some("7"), Some("{}")],
            "signature must be a string when provided",
        ),
        ("signature", &[Some("\"\"")], "signature is required"),
    ] {
        for value in values {
            let refused = changed(name, *value).unwrap_err();
            assert_eq!(refused.to_string(), expected, "{name} {value:?}");
        }
    }
    assert_eq!(changed("signature", None).unwrap().signature(), None);
    assert_eq!(
        FrameError::NotAnObject.to_string(),
        "Invalid intent frame body"
    );
}

#[test]
fn the_first_defect_is_the_one_that_is_named() {
    let mut fields = BeamObject::new();
    for (name, fixed, expected) in [
        ("from", "\"a\"", FrameError::AddressMissing),
        ("to", "\"b\"", FrameError::AddressMissing),
        ("intent", "\"i\"", FrameError::AddressMissing),
        ("payload", "{}", FrameError::PayloadNotAnObject),
        ("nonce", "\"n\"", FrameError::NonceMissing),
        ("timestamp", "\"t\"", FrameError::TimestampMissing),
    ] {
        assert_eq!(IntentFrame::parse(fields.clone().into()), Err(expected));
        fields.insert(name, value(fixed));
    }
    assert!(IntentFrame::parse(fields.into()).is_ok());
}

#[test]
fn a_result_is_kept_verbatim() {
    let text = r#"{"trace":[1],"v":"1","success":false,"nonce":"n","timestamp":"t","payload":{"a":1},"error":"nope","errorCode":"X","latency":12.5,"signature":"s"}"#;
    let frame = ResultFrame::parse(value(text)).unwrap();
    assert!(!frame.success());
    assert_eq!(frame.nonce(), "n");
    assert_eq!(frame.timestamp(), Some("t"));
    assert_eq!(frame.error(), Some("nope"));
    assert_eq!(frame.error_code(), Some("X"));
    assert_eq!(frame.latency(), Some(12.5));
    assert_eq!(frame.signature(), Some("s"));
    assert!(frame.payload().is_some_and(BeamValue::is_object));
    assert_eq!(frame.to_value().to_text(), text);

    let least = ResultFrame::parse(value(r#"{"success":true,"nonce":"n","latency":1e999}"#));
    let least = least.unwrap();
    assert!(least.success());
    assert_eq!((least.latency(), least.error_code()), (None, None));
}

#[test]
fn values_without_nonce_or_success_are_no_results() {
    for (text, expected) in [
        ("[]", ResultFrameError::NotAnObject),
        ("{}", ResultFrameError::NonceMissing),
        (
            r#"{"nonce":"","success":true}"#,
            ResultFrameError::NonceMissing,
        ),
        (
            r#"{"nonce":7,"success":true}"#,
            ResultFrameError::NonceMissing,
        ),
        (r#"{"nonce":"n"}"#, ResultFrameError::SuccessMissing),
        (
            r#"{"nonce":"n","success":"true"}"#,
            ResultFrameError::SuccessMissing,
        ),
    ] {
        assert_eq!(ResultFrame::parse(value(text)), Err(expected), "{text}");
    }
}

#[test]
fn a_new_result_omits_what_is_absent() {
    let frame = ResultFrame::new(ResultFields {
        nonce: "n",
        timestamp: "t",
        error: Some("agent_offline"),
        error_code: Some("OFFLINE"),
        ..ResultFields::default()
    });
    assert_eq!(
        frame.to_value().to_text(),
        r#"{"v":"1","success":false,"nonce":"n","timestamp":"t","error":"agent_offline","errorCode":"OFFLINE"}"#
    );
    assert_eq!(ResultFrame::parse(frame.to_value()), Ok(frame));
}

#[test]
fn debug_output_shows_no_payload() {
    let text = format!("{:?}", intent(INTENT).unwrap());
    assert!(text.contains("x.y") && !text.contains("payload"), "{text}");
}
