//! API keys: who they stand for, what they may do, and their end.

use serde_json::json;

use crate::world::{World, key};

#[tokio::test]
async fn a_key_sends_within_its_capabilities_and_topics() {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    world.member(2, "bob").await;
    let reader = world.api_key(1, json!({"capabilities": ["read"]})).await;
    let post = json!({"topic": "general", "body": "hello"});
    let refused = world.send(&reader, &post).await;
    assert_eq!(refused.error(), (403, "forbidden".to_owned()));
    let scope = json!({"capabilities": ["send"], "topics": ["general"]});
    let scoped = world.api_key(1, scope).await;
    world.send(&scoped, &post).await.of(201);
    let dm = json!({"destination_kind": "dm", "destination_ref": key(2), "body": "hi"});
    let refused = world.send(&scoped, &dm).await;
    assert_eq!(refused.error(), (403, "forbidden".to_owned()));
    let admin = world.api_key(1, json!({"capabilities": ["admin"]})).await;
    world.send(&admin, &dm).await.of(201);
}

#[tokio::test]
async fn a_wrong_missing_or_revoked_key_is_refused() {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    let post = json!({"topic": "general", "body": "hello"});
    let unauthorized = (401, "unauthorized".to_owned());
    let missing = world.request("POST", "/v1/messages", &[], Some("{}")).await;
    assert_eq!(missing.error(), unauthorized);
    for wrong in ["cmk_", "cmk_AAAA", "other", &"x".repeat(500)] {
        assert_eq!(world.send(wrong, &post).await.error(), unauthorized);
    }
    let text = world.api_key(1, json!({"capabilities": ["send"]})).await;
    let keys = world.get("/v1/meshes/acme/keys").await;
    assert!(!keys.text.contains(&text), "a key is shown once");
    let id = keys.of(200)["keys"][0]["id"].as_str().unwrap().to_owned();
    let revoke = format!("/v1/meshes/acme/keys/{id}/revoke");
    assert_eq!(
        world.post(&revoke, &json!({})).await.of(200)["revoked"],
        true
    );
    assert_eq!(world.send(&text, &post).await.error(), unauthorized);

    // A key ends with its member.
    let text = world.api_key(1, json!({"capabilities": ["send"]})).await;
    world.send(&text, &post).await.of(201);
    let path = format!("/v1/meshes/acme/members/{}/revoke", key(1));
    world.post(&path, &json!({})).await.of(200);
    assert_eq!(world.send(&text, &post).await.error(), unauthorized);
    let again = json!({"member": key(1), "capabilities": ["send"]});
    let again = world.post("/v1/meshes/acme/keys", &again).await;
    assert_eq!(again.error(), (404, "not_found".to_owned()));
    let stored = world.ledger.sql("SELECT value FROM records").join("\n");
    assert!(!stored.contains(&text), "only the digest is stored");
}
