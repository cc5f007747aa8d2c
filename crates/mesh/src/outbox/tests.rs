//! The eleven answers, and the end of a row.

use super::*;

fn row(status: OutboxStatus) -> OutboxRow {
    OutboxRow {
        status,
        fingerprint: RequestFingerprint::from_bytes([1; 32]),
        broker_message_id: Some("b-1".to_owned()),
        history_id: Some("h-1".to_owned()),
        last_error: Some("max_age_exceeded".to_owned()),
    }
}

fn decided(status: OutboxStatus, byte: u8) -> OutboxAnswer {
    decide_send(
        Some(&row(status)),
        RequestFingerprint::from_bytes([byte; 32]),
    )
}

fn conflict(status: OutboxStatus, byte: u8) -> OutboxConflict {
    let OutboxAnswer::Conflict(conflict) = decided(status, byte) else {
        panic!("{status} {byte}");
    };
    conflict
}

#[test]
fn all_rows_of_the_table_are_answered_as_listed() {
    use OutboxStatus::{Aborted, Dead, Done, Inflight, Pending};
    let fingerprint = RequestFingerprint::from_bytes([1; 32]);
    assert_eq!(decide_send(None, fingerprint), OutboxAnswer::Enqueue);
    assert_eq!(decided(Pending, 1), OutboxAnswer::OnItsWay(Pending));
    assert_eq!(decided(Inflight, 1), OutboxAnswer::OnItsWay(Inflight));
    let delivered = OutboxAnswer::Delivered {
        broker_message_id: Some("b-1".to_owned()),
        history_id: Some("h-1".to_owned()),
    };
    assert_eq!(decided(Done, 1), delivered);
    for (status, byte, word) in [
        (Pending, 2, "outbox_pending_fingerprint_mismatch"),
        (Inflight, 2, "outbox_inflight_fingerprint_mismatch"),
        (Done, 2, "outbox_done_fingerprint_mismatch"),
        (Dead, 1, "outbox_dead_fingerprint_match"),
        (Dead, 2, "outbox_dead_fingerprint_mismatch"),
        (Aborted, 1, "outbox_aborted_fingerprint_match"),
        (Aborted, 2, "outbox_aborted_fingerprint_mismatch"),
    ] {
        assert_eq!(conflict(status, byte).word(), word);
    }
}

#[test]
fn a_conflict_names_the_delivered_message_and_the_reason_of_a_dead_one() {
    use OutboxStatus::{Aborted, Dead, Done, Pending};
    assert_eq!(conflict(Done, 2).broker_message_id.as_deref(), Some("b-1"));
    assert_eq!(conflict(Pending, 2).broker_message_id, None);
    assert_eq!(
        conflict(Dead, 1).reason.as_deref(),
        Some("max_age_exceeded")
    );
    assert_eq!(conflict(Dead, 2).reason, None);
    assert_eq!(conflict(Aborted, 1).reason, None);
    assert_eq!(conflict(Dead, 2).fingerprint_prefix, "0202020202020202");
}

#[test]
fn acks_with_codes_end_or_repeat_a_row() {
    let ack = |code| AckFrame {
        code: Some(code),
        message_id: "b-1".to_owned(),
        error: (code >= 400).then(|| "text".to_owned()),
        ..AckFrame::default()
    };
    let done = |is_duplicate, is_pruned| AckOutcome::Done {
        broker_message_id: "b-1".to_owned(),
        is_duplicate,
        is_pruned,
    };
    assert_eq!(ack_outcome(&ack(201)), done(false, false));
    let duplicate = AckFrame {
        duplicate: Some(true),
        history_available: Some(true),
        ..ack(200)
    };
    assert_eq!(ack_outcome(&duplicate), done(true, false));
    let pruned = AckFrame {
        history_available: Some(false),
        ..duplicate
    };
    assert_eq!(ack_outcome(&pruned), done(true, true));
    let dead = |is_reused| AckOutcome::Dead {
        error: "text".to_owned(),
        is_reused,
    };
    assert_eq!(ack_outcome(&ack(409)), dead(true));
    for code in [400, 403, 404, 413, 422] {
        assert_eq!(ack_outcome(&ack(code)), dead(false), "{code}");
    }
    for code in [408, 429, 500, 503] {
        assert_eq!(
            ack_outcome(&ack(code)),
            AckOutcome::Retry("text".to_owned()),
            "{code}"
        );
    }
}

#[test]
fn acks_without_codes_are_read_by_their_words() {
    let ack = |queued, error: Option<&str>| AckFrame {
        queued,
        message_id: "b-1".to_owned(),
        error: error.map(str::to_owned),
        ..AckFrame::default()
    };
    assert!(matches!(
        ack_outcome(&ack(true, None)),
        AckOutcome::Done { .. }
    ));
    assert!(matches!(
        ack_outcome(&ack(false, Some("payload_too_large"))),
        AckOutcome::Dead {
            is_reused: false,
            ..
        }
    ));
    assert!(matches!(
        ack_outcome(&ack(false, Some("queue full"))),
        AckOutcome::Retry(_)
    ));
    assert!(matches!(
        ack_outcome(&ack(false, None)),
        AckOutcome::Retry(_)
    ));
}

#[test]
fn pressure_has_three_thresholds() {
    let of = |used| QueuePressure::of(used, 1_000);
    assert_eq!(of(799), QueuePressure::Normal);
    assert_eq!(of(800), QueuePressure::High);
    assert_eq!(of(949), QueuePressure::High);
    assert_eq!(of(950), QueuePressure::Refusing);
    assert_eq!(of(1_000), QueuePressure::Degraded);
    assert_eq!(QueuePressure::of(u64::MAX, 1), QueuePressure::Degraded);
    assert!(of(949).accepts() && !of(950).accepts());
}

#[test]
fn finished_rows_are_not_requeued() {
    let allowed: Vec<_> = OutboxStatus::ALL
        .iter()
        .filter(|one| one.may_requeue())
        .map(|one| one.as_str())
        .collect();
    assert_eq!(allowed, ["pending", "inflight", "dead"]);
}

#[test]
fn a_long_error_of_the_broker_is_cut() {
    let refused = |code| AckFrame {
        code,
        // Two bytes each, after one.
        error: Some(format!("x{}", "\u{e4}".repeat(10_000))),
        ..AckFrame::default()
    };
    for code in [Some(409), Some(400), Some(500), None] {
        match ack_outcome(&refused(code)) {
            AckOutcome::Dead { error, .. } | AckOutcome::Retry(error) => {
                assert_eq!(error.len(), 1_023, "{code:?}");
            }
            AckOutcome::Done { .. } => panic!("{code:?}"),
        }
    }
}
