//! Requests and responses on the pipes.

use consign_automation::plugin::request::{PluginEvent, PluginRequest};
use consign_automation::plugin::response::{
    EmittedEvent, Level, PluginReply, PluginResponse, parse,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn request(command: &str) -> PluginRequest {
    let emitted = EmittedEvent {
        kind: "weight.changed".to_owned(),
        payload: json!({"kg": 70}),
        dedupe_key: None,
    };
    let time = "2026-02-08T10:00:00Z".parse().unwrap();
    PluginRequest {
        job_id: "job-1".to_owned(),
        plugin: "scales".to_owned(),
        command: command.to_owned(),
        config: object(json!({"key": "k"})),
        state: Map::new(),
        context: object(json!({"trace": 1})),
        event: Some(PluginEvent::stamped(
            emitted,
            "withings".to_owned(),
            time,
            "ev-1".to_owned(),
        )),
        payload: None,
        deadline_at: time,
    }
}

fn sent(request: &PluginRequest) -> Value {
    let line = request.to_line();
    assert_eq!(
        line.iter().position(|byte| *byte == b'\n'),
        Some(line.len() - 1)
    );
    serde_json::from_slice(&line).unwrap()
}

fn accepted(answer: &Value) -> PluginResponse {
    match parse(answer.to_string().as_bytes()) {
        Ok(PluginReply::Ok(response)) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_has_every_member_and_an_event_only_for_handle_du_035() {
    let expected = json!({
        "protocol": 2,
        "job_id": "job-1",
        "command": "poll",
        "config": {"key": "k"},
        "state": {},
        "context": {"trace": 1, "ductile_plugin": "scales"},
        "deadline_at": "2026-02-08T10:00:00Z",
    });
    assert_eq!(sent(&request("poll")), expected);

    let mut handle = request("handle");
    handle.payload = Some(object(json!({"line": "a\nb"})));
    let sent = sent(&handle);
    assert_eq!(sent["event"]["type"], "weight.changed");
    assert_eq!(sent["payload"], json!({"line": "a\nb"}));
}

#[test]
fn source_time_and_id_of_an_event_are_the_cores_du_036() {
    let forged = json!({"status": "ok", "result": "r", "events": [
        {"type": "t", "payload": {"a": 1}, "source": "forged", "timestamp": "never", "event_id": "forged"},
    ]});
    let emitted = accepted(&forged).events.remove(0);
    let time = "2026-02-08T10:00:00Z".parse().unwrap();
    let event = PluginEvent::stamped(emitted, "withings".to_owned(), time, "ev-1".to_owned());
    let expected = json!({
        "type": "t",
        "payload": {"a": 1, "result": "r"},
        "source": "withings",
        "timestamp": "2026-02-08T10:00:00Z",
        "event_id": "ev-1",
    });
    assert_eq!(serde_json::to_value(event).unwrap(), expected);
}

#[test]
fn a_full_answer_is_read_and_what_is_unknown_ignored_du_037() {
    let answer = json!({
        "status": "ok", "result": "two events", "protocol": 2, "error": null, "retry": null,
        "ductile_stopwatch_subs": "odd", "later": [1],
        "events": [
            {"type": "a", "payload": {"result": "own"}, "dedupe_key": "k"},
            {"type": "b", "dedupe_key": " "},
            {"type": "c", "payload": [1]},
        ],
        "state_updates": {"cursor": 7},
        "logs": [{"level": "warn", "message": "slow"}, {"message": "plain"}, "bare"],
    });
    let response = accepted(&answer);
    assert_eq!(response.events[0].payload, json!({"result": "own"}));
    assert_eq!(response.events[0].dedupe_key.as_deref(), Some("k"));
    assert_eq!(response.events[1].payload, json!({"result": "two events"}));
    assert_eq!(response.events[1].dedupe_key, None);
    assert_eq!(response.events[2].payload, json!([1]));
    assert_eq!(response.state_updates, object(json!({"cursor": 7})));
    let logs: Vec<_> = response
        .logs
        .iter()
        .map(|line| (line.level, line.message.as_str()))
        .collect();
    assert_eq!(
        logs,
        [
            (Level::Warn, "slow"),
            (Level::Info, "plain"),
            (Level::Info, "bare")
        ]
    );

    let bare =
        json!({"status": "ok", "result": "r", "events": null, "state_updates": null, "logs": null});
    assert!(accepted(&bare).state_updates.is_empty());
    let indented = format!("\n\n{}\n\n", serde_json::to_string_pretty(&answer).unwrap());
    assert!(matches!(parse(indented.as_bytes()), Ok(PluginReply::Ok(_))));
}

#[test]
fn an_answer_that_breaks_the_protocol_is_refused_with_its_member_du_037() {
    for (answer, member) in [
        (json!({}), "status"),
        (json!({"status": "done"}), "status"),
        (json!({"status": true}), "status"),
        (json!({"status": "ok"}), "result"),
        (json!({"status": "ok", "result": "  "}), "result"),
        (json!({"status": "ok", "result": {"a": 1}}), "result"),
        (json!({"status": "error"}), "error"),
        (json!({"status": "error", "error": ""}), "error"),
        (
            json!({"status": "error", "error": "e", "retry": "no"}),
            "retry",
        ),
        (
            json!({"status": "ok", "result": "r", "events": {}}),
            "events",
        ),
        (
            json!({"status": "ok", "result": "r", "events": [{"payload": {}}]}),
            "events[0].type",
        ),
        (
            json!({"status": "ok", "result": "r", "events": [1]}),
            "events[0]",
        ),
        (
            json!({"status": "ok", "result": "r", "state_updates": []}),
            "state_updates",
        ),
        (json!({"status": "ok", "result": "r", "logs": "l"}), "logs"),
    ] {
        let error = parse(answer.to_string().as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("`{member}` must be")),
            "{answer}: {error}"
        );
    }
    for text in [
        "[]",
        "null",
        "{\"status\":\"ok\",\"result\":\"r\"} trailing",
        "NaN",
    ] {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("not one JSON object"), "{text}: {error}");
    }
}

#[test]
fn an_answer_that_would_grow_without_bound_is_refused() {
    let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let event = |payload: Value| json!({"status": "ok", "result": "r", "events": [{"type": "t", "payload": payload}]});
    accepted(&event(nested(60)));
    let long = "x".repeat(1 << 20);
    let copies = vec![json!({"type": "t"}); 100];
    let many = vec![json!({"type": "t"}); 1001];
    for (answer, member) in [
        (event(nested(70)), "events[0].payload"),
        (
            json!({"status": "ok", "result": "r", "state_updates": {"a": nested(70)}}),
            "state_updates",
        ),
        (
            json!({"status": "ok", "result": "r", "events": many}),
            "events",
        ),
        (
            json!({"status": "ok", "result": long, "events": copies}),
            "result",
        ),
    ] {
        let refused = parse(answer.to_string().as_bytes())
            .unwrap_err()
            .to_string();
        assert!(refused.contains(&format!("`{member}`")), "{refused}");
    }
    let error = "é".repeat(100_000);
    let answer = json!({"status": "error", "error": error}).to_string();
    let Ok(PluginReply::Error(refusal)) = parse(answer.as_bytes()) else {
        panic!("it is a refusal");
    };
    assert!(refusal.error.len() < 5_000 && refusal.error.ends_with('…'));
}

#[test]
fn a_refusal_carries_neither_state_nor_events_and_is_retried_by_default_du_041() {
    let answer = |rest: &str| {
        let text = format!(
            r#"{{"status":"error","error":"no network","events":[{{"type":"x"}}],"state_updates":{{"a":1}}{rest}}}"#
        );
        match parse(text.as_bytes()) {
            Ok(PluginReply::Error(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer("").error, "no network");
    assert!(answer("").retry && answer(r#","retry":null"#).retry);
    assert!(!answer(r#","retry":false"#).retry);
}

proptest! {
    #[test]
    fn no_bytes_and_no_cut_answer_confuse_the_reader_du_038(bytes in any::<Vec<u8>>(), cut in 0_usize..42) {
        let whole = br#"{"status":"ok","result":"r","events":[]}  "#;
        let cut_off = parse(&whole[..cut.min(39)]);
        prop_assert!(cut_off.is_err());
        if let Ok(PluginReply::Ok(response)) = parse(&bytes) {
            prop_assert!(!response.result.trim().is_empty());
        }
    }
}
