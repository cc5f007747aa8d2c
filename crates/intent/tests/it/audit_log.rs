//! The log of what operators did.

use serde_json::{Value, json};

use crate::roles::basic;
use crate::world::{ADMIN, Call, PASSWORD, World};

async fn entries(world: &World, query: &str) -> Vec<Value> {
    let answer = world.admin_get(&format!("/admin/audit?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["entries"].as_array().unwrap().clone()
}

fn line(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    let parts = ["actor", "action", "target", "outcome"].map(text);
    parts.join("|")
}

#[tokio::test]
async fn s24_every_change_of_an_operator_has_one_entry_and_no_entry_has_a_secret() {
    let world = World::new();
    let made = world
        .key_with(&json!({"owner": "o", "scopes": ["admin"]}))
        .await;
    let (key, id) = (
        made["api_key"].as_str().unwrap(),
        made["id"].as_str().unwrap(),
    );
    let intent = world.dead_letter("g", "x").await;
    let ann = world.user("ann", "operator").await;
    let retry = Call::post(&format!("/admin/intents/{intent}/retry"))
        .header("authorization", &ann)
        .header("user-agent", &"curl/8 ".repeat(50))
        .header("x-request-id", "r-1");
    assert_eq!(world.send(retry).await.status, 200);
    let purge = Call::post("/admin/purge").header("authorization", &ann);
    world.send(purge).await.assert_refused(403, "forbidden");
    let rotate = Call::post(&format!("/admin/keys/{id}/rotate")).key(key);
    let rotated = world.send(rotate).await.json();
    let unconfirmed = Call::post("/admin/purge").header("authorization", &basic("admin", PASSWORD));
    world
        .send(unconfirmed)
        .await
        .assert_refused(400, "confirmation_required");
    let named = json!({"api_key": rotated["api_key"]});
    let revoked = world.admin_post("/admin/revoke_key", &named).await;
    assert_eq!(revoked.status, 200);
    let mistaken = format!("/admin/keys/{key}/rotate");
    world
        .admin_post(&mistaken, &json!({}))
        .await
        .assert_refused(404, "not_found");
    // Reads, and what was refused before anybody was identified, leave no entry.
    world.admin_get("/admin/keys").await;
    world
        .send(Call::post("/admin/cleanup"))
        .await
        .assert_refused(401, "unauthorized");

    let log = entries(&world, "limit=100").await;
    let lines: Vec<String> = log.iter().rev().map(line).collect();
    let expected = [
        format!("admin-token|key.create|{id}|done"),
        "admin-token|user.add|ann|done".to_owned(),
        format!("user ann|intent.retry|{intent}|done"),
        "user ann|purge.run||forbidden".to_owned(),
        format!("key {id}|key.rotate|{id}|done"),
        "user admin|purge.run||confirmation_required".to_owned(),
        format!("admin-token|key.revoke|{id}|done"),
        "admin-token|key.rotate|***|not_found".to_owned(),
    ];
    assert_eq!(lines, expected);
    let of_retry = &log[log.len() - 3];
    assert_eq!(of_retry["request_id"], "r-1");
    assert_eq!(of_retry["address"], "127.0.0.1");
    let agent = of_retry["user_agent"].as_str().unwrap();
    assert!(
        agent.starts_with("curl/8 ") && agent.len() == 100,
        "{agent}"
    );

    let text = world.admin_get("/admin/audit?limit=100").await.text();
    let new = rotated["api_key"].as_str().unwrap();
    let password = ann.trim_start_matches("Basic ");
    for secret in [key, new, password, ADMIN, PASSWORD] {
        assert!(!text.contains(secret));
    }
}

#[tokio::test]
async fn the_log_is_filtered_paged_and_read_with_the_right_to_read() {
    let world = World::new();
    for n in 0..5 {
        world.key_with(&json!({"owner": format!("o{n}")})).await;
        world.clock.advance_s(10);
    }
    let reader = world.user("ann", "viewer").await;
    assert_eq!(entries(&world, "action=key").await.len(), 5);
    assert_eq!(entries(&world, "action=key.create&limit=2").await.len(), 2);
    assert_eq!(entries(&world, "action=user.add").await.len(), 1);
    assert_eq!(entries(&world, "actor=ann").await.len(), 0);
    assert_eq!(entries(&world, "actor=admin-token").await.len(), 6);
    let first = world.admin_get("/admin/audit?limit=4").await.json();
    let next = first["next"].as_str().unwrap();
    let rest = world
        .admin_get(&format!("/admin/audit?limit=4&after={next}"))
        .await
        .json();
    assert_eq!(rest["entries"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next"], Value::Null);
    let at = first["entries"][2]["at"].as_f64().unwrap().trunc();
    assert_eq!(entries(&world, &format!("since={at}")).await.len(), 3);
    for wrong in ["limit=0", "limit=x", "limit=1001"] {
        let refused = world.admin_get(&format!("/admin/audit?{wrong}")).await;
        refused.assert_refused(400, "invalid_limit");
    }
    let by_viewer = Call::get("/admin/audit").header("authorization", &reader);
    assert_eq!(world.send(by_viewer).await.status, 200);
    let tester = world.tester("t").await;
    let by_client = Call::get("/admin/audit").key(&tester);
    world
        .send(by_client)
        .await
        .assert_refused(401, "unauthorized");
}

#[tokio::test]
async fn s24_an_entry_ends_with_its_retention() {
    let world = World::with(|options| options.operators.audit_retention_days = 1);
    world.key_with(&json!({"owner": "o"})).await;
    world.clock.advance_s(86_399);
    assert_eq!(entries(&world, "").await.len(), 1);
    world.clock.advance_s(1);
    assert_eq!(entries(&world, "").await.len(), 0);
}
