//! The id that a worker gives itself is shown wherever its key id is.

use consign_kernel::receipt::{PublicKey, verify};
use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Call, MAIN, World};

async fn claimed(world: &World, worker: Option<&str>) -> (String, Value) {
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "max_attempts": 1}))
        .await;
    let mut call = Call::post("/claim").key(MAIN);
    if let Some(worker) = worker {
        call = call.header("x-worker-id", worker);
    }
    let job = world.send(call).await.json();
    assert_eq!(job["id"], id.as_str());
    (id, json!({"claim_token": job["claim_token"]}))
}

async fn statement(world: &World, id: &str) -> consign_kernel::receipt::Statement {
    let keys = world.send(Call::get("/.well-known/jwks.json")).await;
    let keys = PublicKey::from_jwks(&keys.text()).unwrap();
    let receipt = world.main_get(&format!("/intents/{id}/receipt")).await;
    verify(&receipt.text(), &keys).unwrap().statement
}

#[tokio::test]
async fn list_status_result_detail_timeline_and_receipt_name_the_worker() {
    let world = World::new();
    let (id, done) = claimed(&world, Some("w-7")).await;
    let held = world.detail(&id).await;
    assert_eq!(
        (&held["claimed_by"], &held["worker"]),
        (&json!("main"), &json!("w-7"))
    );
    let answer = world.main_post(&format!("/fulfill/{id}"), &done).await;
    assert_eq!(answer.status, 200);
    let list = world.main_get("/intents").await.json();
    assert_eq!(list["intents"][0]["worker"], "w-7");
    assert_eq!(world.status(&id).await["worker"], "w-7");
    let result = world.main_get(&format!("/result/{id}")).await.json();
    assert_eq!(result["worker"], "w-7");
    let timeline = world.main_get(&format!("/intents/{id}/timeline")).await;
    let timeline = timeline.json();
    let facts = timeline["facts"].as_array().unwrap().iter();
    let seen: Vec<_> = facts
        .map(|fact| (&fact["actor"], &fact["worker"]))
        .collect();
    let (main, worker, none) = (json!("main"), json!("w-7"), Value::Null);
    assert_eq!(seen, [(&main, &none), (&main, &worker), (&main, &worker)]);
    assert_eq!(statement(&world, &id).await.worker.as_deref(), Some("w-7"));
}

#[tokio::test]
async fn a_dead_letter_names_the_worker_that_failed_last() {
    let world = World::new();
    let (id, mut failed) = claimed(&world, Some("w-8")).await;
    failed["error"] = json!("no");
    let answer = world.main_post(&format!("/fail/{id}"), &failed).await;
    assert_eq!(answer.status, 200);
    let letters = world.admin_get("/admin/dead").await.json();
    assert_eq!(letters[0]["worker"], "w-8");
    let letter = world.admin_get(&format!("/admin/dead/{id}")).await.json();
    assert_eq!(letter["worker"], "w-8");
    assert_eq!(statement(&world, &id).await.worker.as_deref(), Some("w-8"));
    let page = world.admin_get("/admin/dashboard").await.text();
    assert!(page.contains("<td>w-8</td>"), "{page}");
}

#[tokio::test]
async fn without_an_id_nothing_is_added_and_the_receipt_names_the_key() {
    let world = World::new();
    let (id, done) = claimed(&world, None).await;
    let answer = world.main_post(&format!("/fulfill/{id}"), &done).await;
    assert_eq!(answer.status, 200);
    for uri in [format!("/status/{id}"), format!("/result/{id}")] {
        let seen = world.main_get(&uri).await.json();
        assert!(seen.get("worker").is_none(), "{uri}");
    }
    assert_eq!(world.detail(&id).await["worker"], Value::Null);
    assert_eq!(statement(&world, &id).await.worker.as_deref(), Some("main"));
}

#[tokio::test]
async fn a_claim_within_a_batch_of_settlements_names_its_worker_too() {
    let world = World::new();
    let (first, mut item) = claimed(&world, Some("w-1")).await;
    let next = world.publish(json!({"goal": "g", "payload": 2})).await;
    item["id"] = json!(first);
    item["action"] = json!("fulfill");
    let body = json!({"items": [item], "claim": {"max": 1}});
    let call = Call::post("/settle").key(MAIN).header("x-worker-id", "w-2");
    let answer = world.send(call.json(&body)).await.json();
    assert_eq!(text(&answer["intents"][0]["id"]), next);
    assert_eq!(world.status(&first).await["worker"], "w-1");
    assert_eq!(world.status(&next).await["worker"], "w-2");
}
