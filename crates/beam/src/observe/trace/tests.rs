//! Tests of traces.

use consign_kernel::ids::{FactSeq, Micros, Seq};
use consign_kernel::profile::Face;
use consign_kernel::state::Cause;

use super::*;

fn fact(verb: Verb, from: State, to: State, detail: Option<&str>) -> Fact {
    Fact {
        seq: FactSeq(7),
        intent: Seq(1),
        previous: None,
        face: Face::Beam,
        owner: "bob@acme.beam.directory".to_owned(),
        at: Micros(1_767_225_600_000_000),
        wall_offset_us: 2_000_000,
        verb,
        from: Some(from),
        to,
        cause: Cause::None,
        attempt: 1,
        actor: None,
        worker: None,
        detail: detail.map(str::to_owned),
    }
}

fn intent(state: State) -> IntentRow {
    IntentRow {
        nonce: "n-1".to_owned(),
        from: "alice@acme.beam.directory".to_owned(),
        to: "bob@acme.beam.directory".to_owned(),
        intent_type: "conversation.message".to_owned(),
        timestamp: "2026-01-01T00:05:00.000Z".to_owned(),
        requested_at_ms: 1_767_225_900_000,
        completed_at_ms: Some(1_767_225_600_250),
        latency_ms: Some(250),
        state,
        error_code: (state == State::Failed).then(|| "OFFLINE".to_owned()),
    }
}

#[test]
fn details_of_the_relay_are_shown_as_stored() {
    let stored = r#"{"transport":"ws","timeoutMs":5}"#;
    let fact = fact(
        Verb::Deliver,
        State::Dispatched,
        State::Delivered,
        Some(stored),
    );
    let shown = stage(&fact, &intent(State::Delivered));
    assert_eq!(shown.id, 7);
    assert_eq!(shown.state, State::Delivered);
    assert_eq!(shown.timestamp, "2026-01-01T00:00:02.000Z");
    assert_eq!(
        shown.details,
        Some(json!({"transport": "ws", "timeoutMs": 5}))
    );
}

#[test]
fn steps_of_the_ledger_itself_say_what_it_recovered() {
    let recovered = fact(
        Verb::Recover,
        State::Dispatched,
        State::Failed,
        Some("no JSON"),
    );
    let expected = json!({
        "transport": "recovery",
        "previousStatus": "dispatched",
        "recoveryAction": "fail_interrupted_intent",
        "recoveredOnBoot": true,
    });
    assert_eq!(details(&recovered), Some(expected));
    let expired = fact(Verb::Expire, State::Delivered, State::Failed, None);
    let expected = json!({
        "transport": "recovery",
        "previousStatus": "delivered",
        "recoveryAction": "timeout_without_waiter",
        "errorCode": "TIMEOUT",
    });
    assert_eq!(details(&expired), Some(expected));
    let other = fact(Verb::Fail, State::Delivered, State::Failed, Some("text"));
    assert_eq!(details(&other), None);
}

#[test]
fn an_intent_without_facts_shows_its_beginning_and_its_state() {
    let stages = synthetic_stages(&intent(State::Failed));
    let states: Vec<_> = stages.iter().map(|stage| stage.state).collect();
    assert_eq!(states, [State::Received, State::Failed]);
    assert_eq!(stages[0].timestamp, "2026-01-01T00:05:00.000Z");
    assert_eq!(stages[1].timestamp, "2026-01-01T00:00:00.250Z");
    let details = json!({"latencyMs": 250, "errorCode": "OFFLINE"});
    assert_eq!(stages[1].details, Some(details));
    assert_eq!(synthetic_stages(&intent(State::Received)).len(), 1);
}
