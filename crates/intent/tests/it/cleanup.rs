//! The cleanup pass: the rows that it deletes, its schedule, and its failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::faulty::{Faults, Faulty};
use crate::steps::keys_as_written;
use crate::world::{Call, World};

const DAY_S: i64 = 86_400;
const COUNTERS: [&str; 10] = [
    "expired_open_deleted",
    "expired_claims_requeued",
    "expired_claims_dead",
    "fulfilled_deleted",
    "dead_deleted",
    "dead_letters_deleted",
    "store_deleted",
    "rate_limits_deleted",
    "idempotency_deleted",
    "nonces_deleted",
];

async fn cleanup(world: &World) -> Value {
    let answer = world.admin_post("/admin/cleanup", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(keys_as_written(&answer.text()), COUNTERS);
    answer.json()
}

/// All ten counters, zero except for these.
fn counted(some: &[(&str, u64)]) -> Value {
    let count = |name: &str| {
        some.iter()
            .find(|(of, _)| *of == name)
            .map_or(0, |(_, count)| *count)
    };
    COUNTERS
        .iter()
        .map(|name| ((*name).to_owned(), json!(count(name))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test]
async fn ip_142_a_cleanup_with_nothing_to_do_answers_ten_zeros() {
    let world = World::new();
    world.publish(json!({"goal": "g", "payload": 1})).await;
    assert_eq!(cleanup(&world).await, counted(&[]));
}

#[tokio::test]
async fn ip_142_a_cleanup_sends_back_lapsed_leases_and_buries_exhausted_ones() {
    let world = World::new();
    let (again, _) = world
        .leased(json!({"goal": "g", "payload": 1, "backoff_base": 100}))
        .await;
    let (last, _) = world
        .leased(json!({"goal": "g", "payload": 1, "max_attempts": 1}))
        .await;
    world.clock.advance_s(61);
    let expected = counted(&[("expired_claims_requeued", 1), ("expired_claims_dead", 1)]);
    assert_eq!(cleanup(&world).await, expected);
    let (again, last) = (world.status(&again).await, world.status(&last).await);
    assert_eq!(
        (&again["status"], &again["last_error"]),
        (&json!("open"), &json!("Lease expired. Backing off."))
    );
    assert_eq!(
        (&last["status"], &last["last_error"]),
        (&json!("dead"), &json!("Max retries exceeded"))
    );
    assert!(world.claim().await.is_none(), "it waits for its back-off");
    assert_eq!(cleanup(&world).await, counted(&[]), "nothing is done twice");
}

#[tokio::test]
async fn ip_142_ip_179_a_cleanup_removes_what_is_past_its_time() {
    let world = World::new();
    let tester = world.tester("anna").await;
    world
        .publish(json!({"goal": "unclaimed", "payload": 1, "namespace": "n"}))
        .await;
    let dead = world.dead_letter("g", "x").await;
    let fulfilled = world.fulfilled("g", json!(1)).await;
    world.main_post("/set/k", &json!({"value": "v"})).await;
    let call = Call::post("/intent")
        .key(&tester)
        .header("idempotency-key", "k");
    let once = call.json(&json!({"goal": "g", "payload": 1, "namespace": "n"}));
    assert_eq!(world.send(once).await.status, 201);

    world.clock.advance_s(DAY_S);
    let expected = counted(&[
        ("expired_open_deleted", 2),
        ("store_deleted", 1),
        ("rate_limits_deleted", 1),
        ("idempotency_deleted", 1),
    ]);
    assert_eq!(cleanup(&world).await, expected);

    world.clock.advance_s(6 * DAY_S - 1);
    assert_eq!(cleanup(&world).await, counted(&[]), "kept for seven days");
    for id in [&dead, &fulfilled] {
        assert_eq!(world.main_get(&format!("/status/{id}")).await.status, 200);
    }
    assert_eq!(
        world
            .admin_get("/admin/dead")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );

    world.clock.advance_s(1);
    let expected = counted(&[
        ("fulfilled_deleted", 1),
        ("dead_deleted", 1),
        ("dead_letters_deleted", 1),
    ]);
    assert_eq!(cleanup(&world).await, expected);
    for id in [&dead, &fulfilled] {
        world
            .main_get(&format!("/status/{id}"))
            .await
            .assert_refused(404, "not_found");
    }
    world.admin_get("/admin/dead").await.assert_ok(&json!([]));
}

#[tokio::test]
async fn ip_142_a_cleanup_of_more_rows_than_one_commit_takes_counts_them_all() {
    let world = World::new();
    let items: Vec<_> = (0..100)
        .map(|_| json!({"goal": "g", "payload": 1}))
        .collect();
    for _ in 0..11 {
        let answer = world
            .main_post("/intents", &json!({"intents": items}))
            .await;
        assert_eq!(answer.status, 201);
    }
    world.clock.advance_s(DAY_S);
    assert_eq!(
        cleanup(&world).await,
        counted(&[("expired_open_deleted", 1_100)])
    );
}

fn faulty() -> (World, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let world = World::over(|store| Faulty::around(store, Arc::clone(&faults)));
    (world, faults)
}

/// The number of passes that the next request starts.
async fn passes(world: &World, faults: &Faults) -> usize {
    let before = faults.cleanups.load(Ordering::SeqCst);
    assert_eq!(world.claim_with("/claim", crate::world::MAIN).await, None);
    faults.cleanups.load(Ordering::SeqCst) - before
}

#[tokio::test]
async fn ip_173_ip_183_traffic_sets_a_cleanup_off_once_per_interval_and_none_before_the_first() {
    let (world, faults) = faulty();
    // This world has the default interval.
    for _ in 0..2 {
        assert_eq!(passes(&world, &faults).await, 0);
        world.clock.advance_s(21_599);
        assert_eq!(passes(&world, &faults).await, 0);
        world.clock.advance_s(1);
        assert_eq!(passes(&world, &faults).await, 1);
    }
}

#[tokio::test]
async fn ip_183_a_pass_set_off_by_traffic_does_the_work_of_a_pass() {
    let (world, _) = faulty();
    let (id, _) = world
        .leased(json!({"goal": "g", "payload": 1, "backoff_base": 3_600}))
        .await;
    world.clock.advance_s(21_600);
    assert!(
        world.claim().await.is_none(),
        "the pass came first and sent it back with a delay"
    );
    assert_eq!(world.status(&id).await["status"], "open");
}

#[tokio::test]
async fn ip_183_a_request_without_a_valid_key_sets_a_pass_off_as_well() {
    let (world, faults) = faulty();
    world.clock.advance_s(21_600);
    let stranger = world.send(Call::post("/claim")).await;
    stranger.assert_refused(401, "unauthorized");
    assert_eq!(faults.cleanups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn ip_184_after_a_failed_pass_the_next_one_is_60_seconds_away_and_requests_do_not_suffer() {
    let (world, faults) = faulty();
    faults.cleanup_fails.store(true, Ordering::SeqCst);
    world.clock.advance_s(21_600);
    for _ in 0..2 {
        assert_eq!(passes(&world, &faults).await, 1);
        assert_eq!(passes(&world, &faults).await, 0);
        world.clock.advance_s(59);
        assert_eq!(passes(&world, &faults).await, 0);
        world.clock.advance_s(1);
    }
    faults.cleanup_fails.store(false, Ordering::SeqCst);
    assert_eq!(passes(&world, &faults).await, 1);
    world.clock.advance_s(21_599);
    assert_eq!(
        passes(&world, &faults).await,
        0,
        "after a good one the whole interval counts again"
    );
    world.clock.advance_s(1);
    assert_eq!(passes(&world, &faults).await, 1);
}

#[tokio::test]
async fn ip_142_ip_162_a_cleanup_that_fails_on_request_says_so() {
    let (world, faults) = faulty();
    faults.cleanup_fails.store(true, Ordering::SeqCst);
    let answer = world.admin_post("/admin/cleanup", &json!({})).await;
    answer.assert_refused(503, "database_busy");
}
