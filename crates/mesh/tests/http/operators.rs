//! The routes of operators: meshes, members and reads.

use consign_web::listener_policy::ListenerPolicy;
use serde_json::json;

use crate::world::{World, key};

#[tokio::test]
async fn a_mesh_is_created_with_its_settings_and_shown_without_its_secrets() {
    let world = World::new();
    let settings = json!({"dedupe_days": 3, "message_days": 7, "clone_policy": "prefer_oldest"});
    let id = world.mesh(&settings).await;
    let shown = world.get("/v1/meshes/acme").await.of(200);
    assert_eq!(shown["mesh_id"], json!(id));
    assert_eq!(shown["dedupe_days"], json!(3));
    assert_eq!(shown["message_days"], json!(7));
    assert_eq!(shown["clone_policy"], json!("prefer_oldest"));
    let all = world.get("/v1/meshes").await.of(200);
    assert_eq!(all["meshes"], json!([shown]));
    for secret in ["root_key", "owner_secret"] {
        assert!(!all.to_string().contains(secret), "{all}");
    }
    let again = world.post("/v1/meshes", &json!({"slug": "acme"})).await;
    assert_eq!(again.error(), (409, "slug_taken".to_owned()));
    let missing = world.get("/v1/meshes/none").await;
    assert_eq!(missing.error(), (404, "not_found".to_owned()));
    for body in [
        json!({"slug": "Acme"}),
        json!({"slug": "b", "dedupe_days": 2}),
        json!({"slug": "b", "dedupe_mode": "permanent", "dedupe_days": 9}),
        json!({"slug": "b", "message_days": 0}),
        json!({"slug": "b", "clone_policy": "both"}),
        json!({"slug": "b", "typo": 1}),
        json!({}),
    ] {
        let answer = world.post("/v1/meshes", &body).await;
        assert_eq!(
            answer.error(),
            (400, "invalid_request".to_owned()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn cm_043_ids_are_kept_for_a_year_unless_a_mesh_says_otherwise() {
    let world = World::new();
    world.mesh(&json!({})).await;
    let shown = world.get("/v1/meshes/acme").await.of(200);
    assert_eq!(shown["dedupe_mode"], json!("retention_scoped"));
    assert_eq!(shown["dedupe_days"], json!(365));
    let permanent = json!({"slug": "b", "dedupe_mode": "permanent"});
    let created = world.post("/v1/meshes", &permanent).await.of(201);
    assert_eq!(created["dedupe_mode"], json!("permanent"));
    assert_eq!(created["dedupe_days"], json!(null));
}

#[tokio::test]
async fn every_route_of_operators_needs_their_credentials() {
    let world = World::new();
    world.mesh(&json!({})).await;
    for (method, uri) in [
        ("GET", "/v1/meshes"),
        ("POST", "/v1/meshes"),
        ("GET", "/v1/meshes/acme"),
        ("GET", "/v1/meshes/acme/members"),
        ("POST", "/v1/meshes/acme/invites"),
        ("POST", "/v1/meshes/acme/keys"),
        ("GET", "/v1/meshes/acme/messages"),
        ("POST", "/v1/meshes/acme/subscribe"),
        ("POST", "/v1/meshes/acme/unsubscribe"),
        ("GET", "/v1/meshes/acme/dead"),
        ("POST", "/v1/meshes/acme/dead/7/requeue"),
        ("POST", "/v1/mesh/sweep"),
        ("POST", "/v1/mesh/orphan-check"),
    ] {
        for headers in [vec![], vec![("x-admin-token", "wrong-secret-of-the-tests")]] {
            let answer = world.request(method, uri, &headers, Some("{}")).await;
            assert_eq!(answer.error(), (401, "unauthorized".to_owned()), "{uri}");
        }
    }
}

#[tokio::test]
async fn members_are_listed_renamed_and_revoked_for_good() {
    let world = World::new();
    world.mesh(&json!({})).await;
    let alice = world.member(1, "alice").await;
    world.member(2, "bob").await;
    let path = format!("/v1/meshes/acme/members/{}", key(1));
    let renamed = world
        .post(&format!("{path}/rename"), &json!({"name": "Alice B"}))
        .await;
    assert_eq!(renamed.of(200)["name"], json!("Alice B"));
    let revoked = world.post(&format!("{path}/revoke"), &json!({})).await;
    let revoked = revoked.of(200);
    assert_eq!(
        (&revoked["revoked"], &revoked["member_id"]),
        (&json!(true), &json!(alice))
    );
    let names = async |uri: &str| -> Vec<String> {
        let members = world.get(uri).await.of(200);
        let members = members["members"].as_array().unwrap().iter();
        let names = members.map(|member| member["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(names("/v1/meshes/acme/members").await, ["bob"]);
    let all = names("/v1/meshes/acme/members?all=true").await;
    assert_eq!(all, ["Alice B", "bob"]);
    let stranger = format!("/v1/meshes/acme/members/{}/revoke", key(9));
    let stranger = world.post(&stranger, &json!({})).await;
    assert_eq!(stranger.error(), (404, "not_found".to_owned()));
    let malformed = world
        .post("/v1/meshes/acme/members/abc/revoke", &json!({}))
        .await;
    assert_eq!(malformed.error(), (400, "invalid_request".to_owned()));
    // The same key is another member afterwards.
    assert_ne!(world.member(1, "alice").await, alice);
}

#[tokio::test]
async fn reads_show_topics_messages_and_conflicts_without_bodies() {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    world.member(2, "bob").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    let to_bob = json!({
        "destination_kind": "dm", "destination_ref": key(2), "body": "a secret text", "client_message_id": "m-1",
    });
    world.send(&api_key, &to_bob).await.of(201);
    let to_topic = json!({"topic": "general", "body": "hello", "client_message_id": "m-2"});
    world.send(&api_key, &to_topic).await.of(201);
    let mut other = to_bob.clone();
    other["body"] = json!("another text");
    world.send(&api_key, &other).await.of(409);

    let listed = world.get("/v1/meshes/acme/messages").await;
    assert!(!listed.text.contains("secret"), "{}", listed.text);
    let listed = listed.of(200);
    let ids = listed["messages"].as_array().unwrap().iter();
    let ids: Vec<_> = ids.map(|message| &message["client_message_id"]).collect();
    assert_eq!(ids, [&json!("m-2"), &json!("m-1")], "newest first");
    let one = world.get("/v1/meshes/acme/messages?limit=1").await.of(200);
    assert_eq!(one["messages"].as_array().unwrap().len(), 1);
    let topics = world.get("/v1/meshes/acme/topics").await.of(200);
    assert_eq!(topics["topics"][0]["name"], json!("general"));
    assert_eq!(topics["topics"][0]["member_count"], json!(2));
    let peers = world.get("/v1/meshes/acme/peers").await.of(200);
    assert_eq!(peers["peers"], json!([]));
    let dedupe = world.get("/v1/meshes/acme/dedupe").await.of(200);
    assert_eq!(dedupe["conflicts"][0]["mismatches"], json!(1));
    assert_eq!(dedupe["waiting"], json!(2), "{dedupe}");
}

#[tokio::test]
async fn cm_155_an_operator_sets_what_a_member_lets_another_one_do() {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    world.member(2, "bob").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    let to_bob = |id: &str| json!({"destination_kind": "dm", "destination_ref": key(2), "body": "x", "client_message_id": id});
    let grants = format!("/v1/meshes/acme/members/{}/grants", key(2));
    let block = json!({"member": key(1), "grants": []});
    let blocked = world.post(&grants, &block).await.of(200);
    assert_eq!(blocked["grants"], json!([block]));
    world.send(&api_key, &to_bob("m-1")).await.of(403);
    let direct = json!({"member": key(1), "grants": ["dm", "dm"]});
    let allowed = world.post(&grants, &direct).await.of(200);
    assert_eq!(allowed["grants"][0]["grants"], json!(["dm"]));
    world.send(&api_key, &to_bob("m-1")).await.of(201);
    let default = world.post(&grants, &json!({"member": key(1)})).await;
    assert_eq!(default.of(200)["grants"], json!([]));
    for (body, error) in [
        (
            json!({"member": key(1), "grants": ["everything"]}),
            (400, "invalid_request"),
        ),
        (json!({"grants": []}), (400, "invalid_request")),
        (json!({"member": key(9), "grants": []}), (404, "not_found")),
    ] {
        let refused = world.post(&grants, &body).await;
        assert_eq!(refused.error(), (error.0, error.1.to_owned()), "{body}");
    }
}

#[tokio::test]
async fn maintenance_closes_what_is_not_for_operators() {
    let policy = ListenerPolicy {
        maintenance: true,
        ..ListenerPolicy::default()
    };
    let world = World::with(policy, |_| ());
    world.mesh(&json!({})).await;
    let joined = world.join("x", 1, "alice").await;
    assert_eq!(joined.error(), (503, "maintenance".to_owned()));
    let sent = world.send("cmk_x", &json!({})).await;
    assert_eq!(sent.error(), (503, "maintenance".to_owned()));
}
