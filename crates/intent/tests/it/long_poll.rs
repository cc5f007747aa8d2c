//! `POST /claim?wait=`: a waiting worker is woken and does not depend on its next poll.
//!
//! The clock of the runtime does not advance in these tests, so an intermediate poll cannot find the intent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::Timekeeper;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::world::{Answer, Call, MAIN, World};

/// In real time, far longer than any wake takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Paused time advances only when the runtime is idle. A task that is always ready prevents that.
fn freeze_time() {
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
}

/// A worker whose claim found nothing and waits.
async fn waiting(world: &Arc<World>, uri: &str, key: &str) -> JoinHandle<Answer> {
    let (before, lanes) = (world.engine.stats().requests, world.engine.waiters());
    let call = Call::post(uri).key(key);
    let theirs = Arc::clone(world);
    let worker = tokio::spawn(async move { theirs.send(call).await });
    while world.engine.waiters() == lanes || world.engine.stats().requests == before {
        tokio::task::yield_now().await;
    }
    // The ledger answers in order, so after this response the claim of the worker has been executed.
    assert!(
        world
            .claim_with("/claim?namespace=nobody", MAIN)
            .await
            .is_none()
    );
    assert!(!worker.is_finished());
    worker
}

/// The response to a worker. Without a wake the worker would wait forever in frozen time, so a real-time limit fails the test.
async fn woken(worker: JoinHandle<Answer>) -> Answer {
    let began = Instant::now();
    while !worker.is_finished() {
        assert!(began.elapsed() < PATIENCE, "nobody woke the worker");
        tokio::task::yield_now().await;
    }
    worker.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_publish_wakes_a_waiting_worker_at_once() {
    freeze_time();
    let world = Arc::new(World::new());
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    let answer = woken(worker).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()["id"].as_str()),
        (200, Some(id.as_str()))
    );
    assert_eq!(world.engine.waiters(), 0, "its place is free again");
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_woken_in_whichever_way_it_asked() {
    freeze_time();
    let world = Arc::new(World::new());
    let anna = world.tester("anna").await;
    let body = json!({"goal": "g", "payload": 1, "namespace": "n", "visibility": "public", "target_worker": "w",
        "required_capability": "c"});
    for (query, key) in [
        ("namespace=n&worker_id=w&capabilities=b,c", MAIN),
        ("namespace=n&worker_id=w&capabilities=c&goal=g", MAIN),
        ("namespace=n&worker_id=w&capabilities=c", anna.as_str()),
        ("namespace=n&worker_id=w&capabilities=c&goal=g", &anna),
        ("namespace=n&worker_id=w&capabilities=c&max=7", &anna),
    ] {
        let worker = waiting(&world, &format!("/claim?wait=30&{query}"), key).await;
        world.publish(body.clone()).await;
        assert_eq!(woken(worker).await.status, 200, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_coming_due_wakes_a_waiting_worker() {
    freeze_time();
    let world = Arc::new(World::new());
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    let (id, token) = world
        .leased(json!({"goal": "g", "payload": 1, "backoff_base": 1}))
        .await;
    world
        .main_post(&format!("/fail/{id}"), &json!({"claim_token": token}))
        .await;
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    timekeeper.tick().await.unwrap();
    assert!(!worker.is_finished());
    world.clock.advance_s(4);
    timekeeper.tick().await.unwrap();
    assert_eq!(woken(worker).await.json()["claim_attempts"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_delay_coming_to_its_end_wakes_a_waiting_worker() {
    freeze_time();
    let world = Arc::new(World::new());
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    world
        .publish(json!({"goal": "g", "payload": 1, "delay": 5}))
        .await;
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    world.clock.advance_s(5);
    timekeeper.tick().await.unwrap();
    assert_eq!(woken(worker).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_lease_running_out_wakes_a_waiting_worker() {
    freeze_time();
    let world = Arc::new(World::new());
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    let (id, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    world.clock.advance_s(60);
    timekeeper.tick().await.unwrap();
    let answer = woken(worker).await.json();
    assert_eq!(
        (answer["id"].as_str(), &answer["claim_attempts"]),
        (Some(id.as_str()), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn an_operators_retry_wakes_a_waiting_worker() {
    freeze_time();
    let world = Arc::new(World::new());
    let id = world.dead_letter("g", "x").await;
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    world
        .admin_post(&format!("/admin/intents/{id}/retry"), &json!({}))
        .await;
    assert_eq!(woken(worker).await.json()["id"], id.as_str());
}

#[tokio::test(start_paused = true)]
async fn one_intent_satisfies_one_of_two_waiting_workers_and_the_next_the_other() {
    freeze_time();
    let world = Arc::new(World::new());
    let first = waiting(&world, "/claim?wait=30", MAIN).await;
    let second = waiting(&world, "/claim?wait=30&goal=g", MAIN).await;
    world.publish(json!({"goal": "g", "payload": 1})).await;
    let began = Instant::now();
    while !first.is_finished() && !second.is_finished() {
        assert!(began.elapsed() < PATIENCE, "nobody woke either");
        tokio::task::yield_now().await;
    }
    world.publish(json!({"goal": "g", "payload": 1})).await;
    let (first, second) = (woken(first).await.json(), woken(second).await.json());
    assert_ne!(first["id"], second["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_draining_server_lets_its_waiting_workers_go_with_204() {
    freeze_time();
    let world = Arc::new(World::new());
    let worker = waiting(&world, "/claim?wait=30", MAIN).await;
    world.drain.send(true).unwrap();
    let answer = woken(worker).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(world.engine.waiters(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_draining_server_loses_no_intent_to_a_worker_that_asks_to_wait() {
    freeze_time();
    let world = World::new();
    world.drain.send(true).unwrap();
    for _ in 0..20 {
        let id = world.publish(json!({"goal": "g", "payload": 1})).await;
        let answer = world.send(Call::post("/claim?wait=30").key(MAIN)).await;
        assert_eq!(answer.status, 200, "what is there is handed out");
        assert_eq!(answer.json()["id"], id.as_str());
    }
    let empty = world.send(Call::post("/claim?wait=30").key(MAIN)).await;
    assert_eq!(empty.status, 204, "but nobody waits");
}

#[tokio::test(start_paused = true)]
async fn what_is_there_already_is_answered_without_waiting_and_an_end_of_the_wait_is_204() {
    let world = World::new();
    world.publish(json!({"goal": "g", "payload": 1})).await;
    assert!(world.claim_with("/claim?wait=30", MAIN).await.is_some());
    // Time advances here: no intent is published, and the wait times out.
    let began = tokio::time::Instant::now();
    assert!(world.claim_with("/claim?wait=2.5", MAIN).await.is_none());
    assert!(began.elapsed().as_secs_f64() >= 2.5);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_takes_one_request_of_the_allowance_however_long_it_waits() {
    let world = World::new();
    let anna = world.tester("anna").await;
    assert!(world.claim_with("/claim?wait=30", &anna).await.is_none());
    let keys = world.admin_get("/admin/keys").await.json();
    assert_eq!(keys[0]["total_requests"], 1);
    for _ in 0..59 {
        assert!(world.claim_with("/claim", &anna).await.is_none());
    }
    let spent = world.send(Call::post("/claim?wait=30").key(&anna)).await;
    spent.assert_refused(429, "rate_limited");
}

#[tokio::test]
async fn a_tester_key_has_a_share_of_waiting_claims_and_thirty_two_capabilities() {
    let world = Arc::new(World::new());
    let key = world.tester("anna").await;
    let mut waits = Vec::new();
    for _ in 0..32 {
        waits.push(waiting(&world, "/claim?wait=30", &key).await);
    }
    let refused = world.send(Call::post("/claim?wait=30").key(&key)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "limit_exceeded")
    );
    for wait in waits {
        wait.abort();
    }
    let many = |count: usize| {
        let listed: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
        Call::post("/claim")
            .key(MAIN)
            .header("x-worker-capabilities", &listed.join(","))
    };
    assert_eq!(world.send(many(32)).await.status, 204);
    let refused = world.send(many(33)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (400, "invalid_request")
    );
}
