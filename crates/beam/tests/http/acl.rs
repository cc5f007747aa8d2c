//! Access rules over HTTP.

use serde_json::{Value, json};

use super::agents::registered;
use super::world::{Identity, World};

fn rule(allowed_from: &str) -> Value {
    json!({
        "targetBeamId": "bob@acme.beam.directory",
        "intentType": "conversation.message",
        "allowedFrom": allowed_from,
    })
}

async fn added(world: &World, allowed_from: &str) -> Value {
    let answer = world.post("/acl", &rule(allowed_from)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn be_090_a_rule_is_stored_once_and_listed_in_order() {
    let world = World::new().await;
    registered(&world, &Identity::bob()).await;
    let first = added(&world, "zoe@acme.beam.directory").await;
    assert_eq!(first["target_beam_id"], "bob@acme.beam.directory");
    assert_eq!(first["intent_type"], "conversation.message");
    assert_eq!(first["allowed_from"], "zoe@acme.beam.directory");
    assert!(first["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(added(&world, "zoe@acme.beam.directory").await, first);
    let second = added(&world, "*").await;
    assert_ne!(second["id"], first["id"]);
    let list = world.get("/acl/bob%40acme.beam.directory").await.json();
    assert_eq!(list, json!({"acl": [second, first], "total": 2}));
    let answer = world
        .request("DELETE", &format!("/acl/{}", first["id"]), &[], None)
        .await;
    assert_eq!(answer.json(), json!({"ok": true, "id": first["id"]}));
    let list = world.get("/acl/bob@acme.beam.directory").await.json();
    assert_eq!(list, json!({"acl": [second], "total": 1}));
}

#[tokio::test]
async fn be_090_acl_errors() {
    let world = World::new().await;
    let bob = Identity::bob();
    registered(&world, &bob).await;
    for body in [
        json!({}),
        json!({"targetBeamId": bob.beam_id, "intentType": "x"}),
        json!({"targetBeamId": bob.beam_id, "intentType": 7, "allowedFrom": "*"}),
        json!({"targetBeamId": bob.beam_id, "intentType": "x", "allowedFrom": "  "}),
    ] {
        let answer = world.post("/acl", &body).await;
        assert_eq!(answer.error(), (400, "INVALID_ACL".to_owned()), "{body}");
    }
    for target in ["nobody@acme.beam.directory", "no id", "\u{0}"] {
        let body = json!({"targetBeamId": target, "intentType": "x", "allowedFrom": "*"});
        let answer = world.post("/acl", &body).await;
        assert_eq!(answer.error(), (400, "ACL_ERROR".to_owned()), "{body}");
    }
    let long =
        json!({"targetBeamId": bob.beam_id, "intentType": "x".repeat(257), "allowedFrom": "*"});
    assert_eq!(
        world.post("/acl", &long).await.error(),
        (400, "ACL_ERROR".to_owned())
    );
    for id in ["0", "-1", "abc", "1.5", "99999999999999999999"] {
        let answer = world
            .request("DELETE", &format!("/acl/{id}"), &[], None)
            .await;
        assert_eq!(answer.error(), (400, "INVALID_ACL_ID".to_owned()), "{id}");
    }
    let answer = world.request("DELETE", "/acl/4711", &[], None).await;
    assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()));
    let answer = world.get("/acl/abc").await;
    assert_eq!(answer.error(), (400, "INVALID_BEAM_ID".to_owned()));
}

#[tokio::test]
async fn be_090_what_no_rule_allows_is_denied() {
    let world = World::new().await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    registered(&world, &alice).await;
    registered(&world, &bob).await;
    let send = async |nonce: &str| {
        let frame = alice.message(&world, &bob, nonce);
        world.post("/intents/send", &frame).await.error()
    };
    // The recipient is offline, so an allowed intent fails later.
    let denied = (403, "FORBIDDEN".to_owned());
    let allowed = (503, "OFFLINE".to_owned());
    assert_eq!(send("n-0").await, denied);
    for (number, (from, expected)) in [
        ("*", &allowed),
        ("alice@acme.beam.directory", &allowed),
        ("*@acme.beam.directory", &allowed),
        ("*.beam.directory", &allowed),
        ("*@other.beam.directory", &denied),
        ("carol@acme.beam.directory", &denied),
    ]
    .into_iter()
    .enumerate()
    {
        let id = added(&world, from).await["id"].as_u64().unwrap();
        assert_eq!(&send(&format!("n-{number}-a")).await, expected, "{from}");
        world
            .request("DELETE", &format!("/acl/{id}"), &[], None)
            .await;
        assert_eq!(
            send(&format!("n-{number}-b")).await,
            denied,
            "{from} is removed"
        );
    }
}

#[tokio::test]
async fn be_090_from_elsewhere_only_the_target_changes_its_rules() {
    let world = World::new().await;
    let alice_key = registered(&world, &Identity::alice()).await;
    let bob_key = registered(&world, &Identity::bob()).await;
    let body = Some(rule("*").to_string());
    let add = async |headers: &[(&str, &str)]| {
        world
            .from_elsewhere("POST", "/acl", headers, body.clone())
            .await
    };
    assert_eq!(add(&[]).await.error(), (401, "UNAUTHORIZED".to_owned()));
    assert_eq!(add(&[("x-api-key", "bk_YQ.b")]).await.status, 401);
    assert_eq!(
        add(&[("x-api-key", &alice_key)]).await.error(),
        (403, "FORBIDDEN".to_owned())
    );
    let list = world.get("/acl/bob@acme.beam.directory").await.json();
    assert_eq!(list["total"], 0);
    let answer = add(&[("x-api-key", &bob_key)]).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let path = format!("/acl/{}", answer.json()["id"]);
    let remove = async |path: &str, headers: &[(&str, &str)]| {
        world
            .from_elsewhere("DELETE", path, headers, None)
            .await
            .status
    };
    assert_eq!(remove(&path, &[]).await, 401);
    assert_eq!(remove(&path, &[("x-api-key", &alice_key)]).await, 403);
    assert_eq!(
        remove("/acl/4711", &[]).await,
        401,
        "a rule that does not exist"
    );
    assert_eq!(remove("/acl/4711", &[("x-api-key", &alice_key)]).await, 404);
    let bearer = format!("Bearer {bob_key}");
    assert_eq!(remove(&path, &[("authorization", &bearer)]).await, 200);
}

#[tokio::test]
async fn rules_that_are_added_at_the_same_time_are_all_kept() {
    let world = World::new().await;
    registered(&world, &Identity::bob()).await;
    let senders: Vec<_> = (0..8)
        .map(|number| format!("a{number}@acme.beam.directory"))
        .collect();
    futures_util::future::join_all(senders.iter().map(|from| added(&world, from))).await;
    let list = world.get("/acl/bob@acme.beam.directory").await.json();
    assert_eq!(list["total"], 8);
}
