//! Limits, times and owners of imported intents.

use std::sync::Arc;
use std::time::Duration;

use consign_kernel::receipt::Signer;
use consign_store::memory::Memory;

use super::*;
use crate::{EngineClock, Options, SealKey, key_id};

fn engine() -> Engine {
    let clock = Arc::new(EngineClock::start(None));
    Engine::new(Options {
        store: Arc::new(Memory::new(Arc::clone(&clock) as _)),
        clock: Arc::clone(&clock) as _,
        wall: clock,
        entropy: [3; 32],
        seal: SealKey::new([7; 32]),
        signer: Signer::from_seed(&[9; 32]),
        main_key: "old-main-key".to_owned(),
        cleanup_interval: Duration::from_mins(5),
    })
}

fn foreign() -> ForeignIntent {
    ForeignIntent {
        rowid: 1,
        id: "0".repeat(32),
        namespace: "default".to_owned(),
        goal: "greet".to_owned(),
        payload: "{}".to_owned(),
        status: "open".to_owned(),
        priority: 100,
        target_worker: None,
        required_capability: None,
        created_at: 1.5,
        expires_at: 86_401.5,
        run_at: 1.5,
        claimed_at: None,
        claim_expires_at: None,
        claimed_by: None,
        claim_token: None,
        publisher: "old-main-key".to_owned(),
        claim_attempts: 0,
        max_attempts: 3,
        backoff_base: 5.0,
        visibility: "private".to_owned(),
        last_error: None,
        failed_at: None,
        result: None,
        result_type: None,
        completed_at: None,
    }
}

fn changed(change: impl FnOnce(&mut ForeignIntent)) -> Result<Intent, String> {
    let mut row = foreign();
    change(&mut row);
    translate(&engine(), &row, None)
}

fn check(change: impl FnOnce(&mut ForeignIntent), words: &str) {
    let reason = changed(change).unwrap_err();
    assert!(reason.contains(words), "{reason}");
}

#[test]
fn a_row_over_a_limit_is_refused_with_the_limit() {
    check(|row| row.goal = " \n".to_owned(), "goal is not 1-256");
    check(|row| row.goal = "é".repeat(257), "goal is not 1-256");
    check(|row| row.namespace = String::new(), "namespace");
    check(|row| row.namespace = "a\"b".to_owned(), "namespace");
    check(|row| row.namespace = "n".repeat(65), "1-64 characters");
    check(|row| row.namespace = "beam.x".to_owned(), "reserved");
    check(|row| row.namespace = "mesh.x".to_owned(), "reserved");
    check(
        |row| row.target_worker = Some("a b".to_owned()),
        "target_worker",
    );
    check(
        |row| row.required_capability = Some("c".repeat(65)),
        "required_capability",
    );
    check(
        |row| row.payload = format!("\"{}\"", "p".repeat(7_167)),
        "payload has 7169 bytes",
    );
    check(
        |row| row.result = Some(format!("\"{}\"", "r".repeat(7_167))),
        "result has 7169 bytes",
    );
    check(
        |row| {
            row.result = Some("r".repeat(7_169));
            row.result_type = Some("text".to_owned());
        },
        "result has 7169 bytes",
    );
    check(
        |row| row.result = Some("{".to_owned()),
        "result is not JSON",
    );
}

#[test]
fn a_row_at_its_limits_is_taken() {
    let intent = changed(|row| {
        row.goal = format!(" {} ", "é".repeat(256));
        row.namespace = "n".repeat(64);
        row.target_worker = Some("a_b.c:d-e".to_owned());
        // Spelt with escapes, each letter counts as the two bytes it has in UTF-8.
        row.payload = format!("[ \"{}\" ]", "\\u00e9".repeat(3_582));
        row.result = Some("r".repeat(7_168));
        row.result_type = Some("text".to_owned());
        row.last_error = Some("é".repeat(4_096));
    })
    .unwrap();
    assert_eq!(intent.goal.chars().count(), 256);
    assert_eq!(json::utf8_len(&intent.payload), 7_168);
    assert_eq!(intent.last_error.unwrap(), "é".repeat(4_096));
}

#[test]
fn a_time_that_is_none_is_refused() {
    for unix in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e15] {
        check(|row| row.created_at = unix, "created_at");
        check(|row| row.run_at = unix, "run_at");
        check(|row| row.expires_at = unix, "expires_at");
        check(|row| row.claimed_at = Some(unix), "claimed_at");
        check(|row| row.claim_expires_at = Some(unix), "claim_expires_at");
        check(|row| row.completed_at = Some(unix), "completed_at");
        check(|row| row.failed_at = Some(unix), "failed_at");
    }
}

#[test]
fn a_publisher_is_known_by_the_digest_of_its_key_alone() {
    assert_eq!(changed(|_| ()).unwrap().owner, "main");
    for name in ["main", "k_0123456789abcdef"] {
        let intent = changed(|row| {
            row.publisher = name.to_owned();
            row.claimed_by = Some(name.to_owned());
        })
        .unwrap();
        assert_eq!(intent.owner, key_id(name));
        assert_eq!(intent.holder, Some(key_id(name)));
    }
}
