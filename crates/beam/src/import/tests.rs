//! Tests of the import.

use consign_engine::{ForeignBeamIntent, ForeignMessage, ForeignTraceEvent};
use consign_kernel::command::Restore;
use consign_kernel::ids::Micros;
use consign_kernel::state::{Cause, State};
use serde_json::{Value, json};

use crate::relay::IntentRow;

/// 2026-01-02T00:00:00Z.
const NOW: Micros = Micros(1_767_312_000_000_000);

fn intent(status: &str) -> ForeignBeamIntent {
    ForeignBeamIntent {
        id: 7,
        nonce: Some("n-1".to_owned()),
        from_beam_id: "alice@acme.beam.directory".to_owned(),
        to_beam_id: "bob@acme.beam.directory".to_owned(),
        intent_type: "agent.ping".to_owned(),
        requested_at: "2026-01-01T00:00:00.000Z".to_owned(),
        completed_at: None,
        latency_ms: None,
        status: status.to_owned(),
        error_code: None,
        result_json: None,
    }
}

fn event(stage: &str, status: &str, second: u32, details: Option<Value>) -> ForeignTraceEvent {
    ForeignTraceEvent {
        stage: stage.to_owned(),
        status: status.to_owned(),
        timestamp: format!("2026-01-01T00:00:{second:02}.000Z"),
        details: details.map(|details| details.to_string()),
    }
}

fn restored(foreign: ForeignBeamIntent, trace: &[ForeignTraceEvent]) -> Restore {
    super::intents::translate("n-1", foreign, trace, NOW).unwrap()
}

fn states(restore: &Restore) -> Vec<State> {
    restore.history.iter().map(|fact| fact.to).collect()
}

#[test]
fn be_009_legacy_words_of_intents_are_translated() {
    for (word, state) in [
        ("pending", State::Received),
        ("success", State::Acked),
        ("error", State::Failed),
        ("expired", State::DeadLetter),
        ("delivered", State::Delivered),
        ("no word", State::Received),
    ] {
        let restore = restored(intent(word), &[]);
        assert_eq!(restore.intent.state, state, "{word}");
        assert_eq!(states(&restore).last(), Some(&state), "{word}");
        assert_eq!(states(&restore).first(), Some(&State::Received), "{word}");
    }
}

#[test]
fn be_010_a_legacy_trace_keeps_its_order_its_times_and_its_words_in_the_details() {
    let trace = [
        event("sender_lookup", "success", 0, None),
        event(
            "validated",
            "validated",
            1,
            Some(json!({"transport": "http"})),
        ),
        event("dispatch", "pending", 2, Some(json!({"route": "ws"}))),
        event("dedupe", "success", 3, None),
        event("delivery", "success", 2, None),
        event("completed", "success", 5, None),
    ];
    let restore = restored(intent("success"), &trace);
    assert_eq!(
        states(&restore),
        [
            State::Received,
            State::Validated,
            State::Dispatched,
            State::Delivered,
            State::Acked
        ]
    );
    let detail = |index: usize| -> Value {
        serde_json::from_str(restore.history[index].detail.as_deref().unwrap()).unwrap()
    };
    assert_eq!(
        detail(0),
        json!({"legacyStage": "sender_lookup", "legacyStatus": "success"})
    );
    assert_eq!(detail(1), json!({"transport": "http"}));
    assert_eq!(
        detail(2),
        json!({"route": "ws", "legacyStage": "dispatch", "legacyStatus": "pending"})
    );
    let seconds: Vec<i64> = (restore.history.iter())
        .map(|fact| fact.at.0 / 1_000_000 % 60)
        .collect();
    assert_eq!(seconds, [0, 1, 2, 2, 5]);
}

#[test]
fn a_trace_that_ends_before_the_row_is_completed() {
    let foreign = ForeignBeamIntent {
        completed_at: Some("2026-01-01T00:00:09.500Z".to_owned()),
        latency_ms: Some(9_500),
        error_code: Some("OFFLINE".to_owned()),
        ..intent("failed")
    };
    let trace = [event("received", "received", 0, None)];
    let restore = restored(foreign, &trace);
    assert_eq!(states(&restore), [State::Received, State::Failed]);
    assert_eq!(restore.intent.cause, Cause::Rejected);
    let row = IntentRow::of(&restore.intent).unwrap();
    assert_eq!(row.error_code.as_deref(), Some("OFFLINE"));
    assert_eq!(row.latency_ms, Some(9_500));
    assert_eq!(row.completed_at_ms, Some(1_767_225_609_500));
    assert_eq!(restore.history[1].at, Micros(1_767_225_609_500_000));
}

#[test]
fn a_result_is_kept_verbatim_and_anything_else_is_refused() {
    let frame = r#"{"v":"1","success":true,"nonce":"n-1","latency":12.0}"#;
    let foreign = ForeignBeamIntent {
        result_json: Some(frame.to_owned()),
        ..intent("acked")
    };
    let restore = restored(foreign, &[]);
    assert_eq!(restore.intent.result.unwrap().body, frame);
    let foreign = ForeignBeamIntent {
        result_json: Some("[1]".to_owned()),
        ..intent("acked")
    };
    let refused = super::intents::translate("n-1", foreign, &[], NOW);
    assert_eq!(refused.unwrap_err(), "its result_json is no object");
}

fn message(status: &str) -> ForeignMessage {
    ForeignMessage {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        nonce: Some("m-1".to_owned()),
        sender: "alice@acme.beam.directory".to_owned(),
        recipient: "bob@acme.beam.directory".to_owned(),
        intent: "agent.ping".to_owned(),
        payload: r#"{"z":1,"a":184.0}"#.to_owned(),
        status: status.to_owned(),
        priority: Some(3),
        retry_count: Some(2),
        max_retries: Some(5),
        next_retry_at: None,
        created_at: 1_767_225_600.25,
        delivered_at: None,
        acked_at: None,
        failed_at: None,
        error: None,
        response: None,
        trace_id: Some("t-1".to_owned()),
        metadata: Some(r#"{"k":null}"#.to_owned()),
    }
}

fn sent(foreign: ForeignMessage) -> Restore {
    super::messages::translate(foreign, NOW).unwrap()
}

#[test]
fn be_009_legacy_words_of_messages_are_translated() {
    for (word, state) in [
        ("pending", State::Received),
        ("success", State::Acked),
        ("error", State::Failed),
        ("expired", State::DeadLetter),
        ("queued", State::Queued),
    ] {
        let restore = sent(message(word));
        assert_eq!(restore.intent.state, state, "{word}");
        assert_eq!(states(&restore).last(), Some(&state), "{word}");
    }
}

#[test]
fn a_message_keeps_its_id_its_content_and_its_times() {
    let restore = sent(ForeignMessage {
        delivered_at: Some(1_767_225_601.5),
        acked_at: Some(1_767_225_602.75),
        response: Some(r#"{"ok": true}"#.to_owned()),
        ..message("acked")
    });
    let row = &restore.intent;
    assert_eq!(row.id.to_string(), "0123456789abcdef0123456789abcdef");
    assert_eq!(
        row.payload,
        r#"{"nonce":"m-1","payload":{"z":1,"a":184},"trace_id":"t-1","metadata":{"k":null}}"#
    );
    assert_eq!(row.created_at, Micros(1_767_225_600_250_000));
    // A delivered message has the time of its delivery as its due time.
    assert_eq!(row.run_at, Micros(1_767_225_601_500_000));
    assert_eq!(row.settled_at, Some(Micros(1_767_225_602_750_000)));
    assert_eq!(row.result.as_ref().unwrap().body, r#"{"ok":true}"#);
    assert_eq!((row.priority, row.attempts, row.attempts_max), (3, 3, 5));
    assert_eq!(
        states(&restore),
        [
            State::Received,
            State::Dispatched,
            State::Delivered,
            State::Acked
        ]
    );
}

#[test]
fn a_queued_message_keeps_its_retry_time_and_its_count() {
    let restore = sent(ForeignMessage {
        next_retry_at: Some(1_767_399_000.0),
        error: Some("agent_offline".to_owned()),
        ..message("queued")
    });
    let row = &restore.intent;
    assert_eq!(row.run_at, Micros(1_767_399_000_000_000));
    assert_eq!((row.attempts, row.holder.as_ref()), (2, None));
    assert_eq!(row.last_error.as_deref(), Some("agent_offline"));
    // Without a time it is due now.
    assert_eq!(sent(message("queued")).intent.run_at, NOW);
}

#[test]
fn a_message_without_a_nonce_has_its_id_as_nonce() {
    let restore = sent(ForeignMessage {
        nonce: None,
        ..message("acked")
    });
    let key = restore.once.unwrap().key;
    assert_eq!(key.key, "0123456789abcdef0123456789abcdef");
    let other = sent(ForeignMessage {
        id: "not-hex".to_owned(),
        ..message("acked")
    });
    let again = sent(ForeignMessage {
        id: "not-hex".to_owned(),
        ..message("acked")
    });
    assert_eq!(other.intent.id, again.intent.id);
}

fn assert_legal(restore: &Restore) {
    let mut from = None;
    for to in states(restore) {
        let profile = restore.intent.profile.profile();
        assert!(profile.joins(from, to), "{from:?} to {to:?}");
        from = Some(to);
    }
    assert_eq!(from, Some(restore.intent.state));
}

#[test]
fn be_008_a_partial_trace_becomes_a_legal_walk() {
    let words = [
        "received",
        "validated",
        "dispatched",
        "delivered",
        "acked",
        "failed",
    ];
    for row in ["acked", "failed", "delivered", "received", "dead_letter"] {
        for first in words {
            for second in words {
                let trace = [event(first, first, 0, None), event(second, second, 1, None)];
                assert_legal(&restored(intent(row), &trace));
            }
        }
    }
    let trace = [
        event("received", "received", 0, None),
        event("failed", "failed", 1, None),
        event("received", "received", 2, None),
        event("validated", "validated", 2, None),
        event("dispatched", "dispatched", 3, None),
        event("delivered", "delivered", 4, None),
        event("acked", "acked", 5, None),
    ];
    let restore = restored(intent("acked"), &trace);
    assert_legal(&restore);
    assert!(
        states(&restore).contains(&State::Failed),
        "the first attempt stays"
    );
}

#[test]
fn be_008_a_message_without_attempts_has_a_legal_walk() {
    for word in ["acked", "failed", "delivered", "dead_letter", "queued"] {
        for retry_count in [0, 2] {
            assert_legal(&sent(ForeignMessage {
                retry_count: Some(retry_count),
                ..message(word)
            }));
        }
    }
}

#[test]
fn a_message_that_failed_at_an_unknown_time_stays_without_one() {
    for word in ["failed", "dead_letter", "acked"] {
        let restore = sent(ForeignMessage {
            delivered_at: Some(1_767_225_601.5),
            ..message(word)
        });
        assert_eq!(restore.intent.settled_at, None, "{word}");
    }
}
