//! Redaction, truncation and replies.

use super::*;

fn input(event: &Value, redacted: &[&str], bytes_max: usize) -> Value {
    let redacted: Vec<String> = redacted.iter().map(|&path| path.to_owned()).collect();
    let text = hook_input(event.as_object().unwrap(), &redacted, bytes_max);
    assert!(text.len() <= bytes_max, "{} bytes", text.len());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn redacted_paths_are_not_in_the_input() {
    let event = json!({"body": "secret", "meta": {"token": "t", "list": [{"a": 1, "b": 2}, {"a": 3}]}, "id": 1});
    assert_eq!(input(&event, &["body"], 1_000)["body"], Value::Null);
    let left = input(&event, &["$.meta.token", "meta.list.*.a"], 1_000);
    assert_eq!(
        left,
        json!({"body": "secret", "meta": {"list": [{"b": 2}, {}]}, "id": 1})
    );
    assert_eq!(
        input(&event, &["meta.list.1"], 1_000)["meta"]["list"],
        json!([{"a": 1, "b": 2}, null])
    );
    assert_eq!(input(&event, &["meta.*"], 1_000)["meta"], json!({}));
    assert_eq!(input(&event, &["", "none.such", "id.x"], 1_000), event);
}

#[test]
fn a_long_event_is_cut_and_says_so() {
    let event = json!({"body": "é\u{1}".repeat(5_000), "meta": "m".repeat(2_000), "id": "x"});
    let cut = input(&event, &[], 4_096);
    assert_eq!(cut["_truncated"], true);
    assert_eq!(cut["id"], "x");
    let body = cut["body"].as_str().unwrap();
    assert!(event["body"].as_str().unwrap().starts_with(body) && !body.is_empty());
    assert!(input(&event, &["body"], 4_096).get("_truncated").is_none());
    let numbers = json!({"list": vec![1; 10_000], "id": "x"});
    assert_eq!(
        input(&numbers, &[], 100),
        json!({"id": "x", "_truncated": true})
    );
}

#[test]
fn output_is_a_reply_an_object_or_nothing() {
    assert_eq!(HookOutput::parse(b" \n"), HookOutput::Empty);
    assert_eq!(
        HookOutput::parse(br#"{"reply":"ok"}"#),
        HookOutput::Reply("ok".to_owned())
    );
    assert_eq!(
        HookOutput::parse(br#"{"message":"m"}"#),
        HookOutput::Object(r#"{"message":"m"}"#.to_owned())
    );
    for invalid in [&b"ok"[..], b"[]", b"{", b"\xff"] {
        assert_eq!(HookOutput::parse(invalid), HookOutput::Invalid);
    }
}
