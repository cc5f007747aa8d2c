//! Items of named queues that workers of the Intent Protocol claim and settle.

use consign_engine::Operator;
use serde_json::{Value, json};

use crate::world::{Answer, World};

const BUILDS: &str = "mesh.acme.builds";

impl World {
    /// A tester key with grants for these namespaces.
    async fn worker(&self, grants: &[&str]) -> String {
        let grants: Vec<String> = grants.iter().map(|&grant| grant.to_owned()).collect();
        let key = self
            .engine
            .create_key(Operator::vouched(), "worker", &grants)
            .await;
        key.unwrap().secret
    }

    async fn as_worker(&self, key: &str, path: &str, body: &Value) -> Answer {
        let headers = [("x-api-key", key)];
        self.request("POST", path, &headers, Some(&body.to_string()))
            .await
    }
}

async fn world() -> (World, String) {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    (world, api_key)
}

fn work(id: &str) -> Value {
    json!({
        "destination_kind": "queue", "destination_ref": "builds", "body": "cargo build", "client_message_id": id,
    })
}

#[tokio::test]
async fn a_worker_with_a_grant_works_on_a_queue_of_a_mesh() {
    let (world, api_key) = world().await;
    let sent = world.send(&api_key, &work("w-1")).await.of(201);
    let worker = world.worker(&[BUILDS]).await;
    let claim = format!("/claim?namespace={BUILDS}");
    let claimed = world.as_worker(&worker, &claim, &json!({})).await.of(200);
    assert_eq!(claimed["namespace"], BUILDS);
    assert_eq!(claimed["source"]["client_message_id"], "w-1");
    assert_eq!(claimed["source"]["sender_name"], "alice");
    assert_eq!(claimed["payload"]["message_id"], sent["broker_message_id"]);
    let empty = world.as_worker(&worker, &claim, &json!({})).await;
    assert_eq!(empty.status, 204, "{}", empty.text);
    let path = format!("/fulfill/{}", claimed["id"].as_str().unwrap());
    let body = json!({"claim_token": claimed["claim_token"], "result": {"ok": true}});
    let fulfilled = world.as_worker(&worker, &path, &body).await;
    assert_eq!(fulfilled.status, 200, "{}", fulfilled.text);
    // The same message again is not work again.
    world.send(&api_key, &work("w-1")).await.of(200);
    let empty = world.as_worker(&worker, &claim, &json!({})).await;
    assert_eq!(empty.status, 204, "{}", empty.text);
}

#[tokio::test]
async fn a_failed_item_is_tried_again_and_a_key_without_grant_gets_nothing() {
    let (world, api_key) = world().await;
    world.send(&api_key, &work("w-1")).await.of(201);
    let claim = format!("/claim?namespace={BUILDS}");
    let stranger = world.worker(&["mesh.other.builds"]).await;
    let refused = world.as_worker(&stranger, &claim, &json!({})).await;
    assert_eq!(refused.error(), (403, "forbidden".to_owned()));
    let other = "/claim?namespace=mesh.other.builds";
    let nothing = world.as_worker(&stranger, other, &json!({})).await;
    assert_eq!(nothing.status, 204, "the queue belongs to another mesh");

    let worker = world.worker(&[BUILDS]).await;
    let claimed = world.as_worker(&worker, &claim, &json!({})).await.of(200);
    let path = format!("/fail/{}", claimed["id"].as_str().unwrap());
    let body = json!({"claim_token": claimed["claim_token"], "error": "no compiler"});
    let failed = world.as_worker(&worker, &path, &body).await;
    assert_eq!(failed.status, 200, "{}", failed.text);
    world.clock.advance_s(60);
    let again = world.as_worker(&worker, &claim, &json!({})).await.of(200);
    assert_eq!(again["claim_attempts"], json!(2));
}

#[tokio::test]
async fn a_dead_item_is_listed_without_its_body_and_offered_again() {
    let (world, api_key) = world().await;
    world.send(&api_key, &work("w-1")).await.of(201);
    let worker = world.worker(&[BUILDS]).await;
    let claim = format!("/claim?namespace={BUILDS}");
    let mut id = String::new();
    while id.is_empty() {
        let claimed = world.as_worker(&worker, &claim, &json!({})).await.of(200);
        let item = claimed["id"].as_str().unwrap();
        let body = json!({"claim_token": claimed["claim_token"], "error": "no compiler"});
        let path = format!("/fail/{item}");
        let failed = world.as_worker(&worker, &path, &body).await;
        assert_eq!(failed.status, 200, "{}", failed.text);
        if claimed["claim_attempts"] == 3 {
            item.clone_into(&mut id);
        }
        world.clock.advance_s(3_600);
    }
    let listed = world.get("/v1/meshes/acme/dead").await;
    assert!(!listed.text.contains("Y2FyZ28"), "{}", listed.text);
    let listed = listed.of(200);
    let item = &listed["items"][0];
    assert_eq!(item["item_id"], json!(id));
    assert_eq!(item["queue"], "builds");
    assert_eq!(item["client_message_id"], "w-1");
    assert_eq!(item["reason"], "no compiler");
    assert_eq!(item["attempts"], 3);
    world
        .post("/v1/meshes", &json!({"slug": "b"}))
        .await
        .of(201);
    assert_eq!(
        world.get("/v1/meshes/b/dead").await.of(200)["items"],
        json!([])
    );

    let requeue = |slug: &str, id: &str| format!("/v1/meshes/{slug}/dead/{id}/requeue");
    for uri in [requeue("b", &id), requeue("acme", "none")] {
        let refused = world.post(&uri, &json!({})).await;
        assert_eq!(refused.error(), (404, "not_found".to_owned()), "{uri}");
    }
    let uri = requeue("acme", &id);
    world.post(&uri, &json!({})).await.of(200);
    let again = world.post(&uri, &json!({})).await;
    assert_eq!(
        again.error(),
        (404, "not_found".to_owned()),
        "it is not dead"
    );
    let claimed = world.as_worker(&worker, &claim, &json!({})).await.of(200);
    assert_eq!(claimed["id"], json!(id));
    assert_eq!(
        world.get("/v1/meshes/acme/dead").await.of(200)["items"],
        json!([])
    );
}
