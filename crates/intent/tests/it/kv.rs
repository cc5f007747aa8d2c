//! The ephemeral key-value store.

use serde_json::{Value, json};

use crate::world::{Answer, Call, MAIN, World};

async fn set(world: &World, key: &str, body: Value) -> Answer {
    world.main_post(&format!("/set/{key}"), &body).await
}

async fn value(world: &World, key: &str) -> Option<String> {
    let answer = world.main_get(&format!("/get/{key}")).await;
    if answer.status != 200 {
        answer.assert_refused(404, "not_found");
        return None;
    }
    let body = answer.json();
    assert_eq!(body.as_object().unwrap().len(), 1, "only the value");
    Some(body["value"].as_str().expect("always text").to_owned())
}

#[tokio::test]
async fn ip_128_ip_131_a_value_lives_600_seconds_unless_told_otherwise() {
    let world = World::new();
    set(&world, "k", json!({"value": "v"}))
        .await
        .assert_ok(&json!({"ok": true}));
    world.clock.advance_us(599_999_999);
    assert_eq!(value(&world, "k").await.as_deref(), Some("v"));
    world.clock.advance_us(1);
    assert_eq!(value(&world, "k").await, None);
}

#[tokio::test]
async fn ip_129_ip_131_a_ttl_is_drawn_into_1_to_86400_seconds() {
    for (ttl, lives_s) in [
        (json!(5), 5),
        (json!(86_400), 86_400),
        (json!(86_401), 86_400),
        (json!(1e300), 86_400),
        (json!(0), 1),
        (json!(-7), 1),
        (json!(2.9), 2),
        (json!(0.2), 1),
        (Value::Null, 600),
    ] {
        let world = World::new();
        assert_eq!(
            set(&world, "k", json!({"value": "v", "ttl": ttl}))
                .await
                .status,
            200
        );
        world.clock.advance_s(lives_s - 1);
        assert!(value(&world, "k").await.is_some(), "{ttl} lasted too short");
        world.clock.advance_s(1);
        assert_eq!(value(&world, "k").await, None, "{ttl} lasted too long");
    }
    let world = World::new();
    let worded = set(&world, "k", json!({"value": "v", "ttl": "long"})).await;
    worded.assert_refused(400, "invalid_ttl");
}

#[tokio::test]
async fn ip_128_ip_130_a_value_comes_back_as_text_and_the_last_one_counts() {
    let world = World::new();
    for (sent, kept) in [
        (json!("words"), "words"),
        (json!(""), ""),
        (json!("é\n\"{"), "é\n\"{"),
        (json!(5), "5"),
        (json!(2.50), "2.5"),
        (json!(true), "true"),
        (json!(null), "null"),
        (json!({"a": [1, null]}), "{\"a\":[1,null]}"),
        (json!([1, "x"]), "[1,\"x\"]"),
    ] {
        assert_eq!(set(&world, "k", json!({"value": sent})).await.status, 200);
        assert_eq!(value(&world, "k").await.as_deref(), Some(kept));
    }
}

#[tokio::test]
async fn ip_130_an_unknown_key_and_a_missing_value_are_refused() {
    let world = World::new();
    let missing = world.main_get("/get/never").await;
    missing.assert_refused(404, "not_found");
    assert_eq!(missing.json()["error"]["message"], "Key not found.");
    set(&world, "k", json!({"ttl": 5}))
        .await
        .assert_refused(400, "invalid_request");
    set(&world, "k", json!([1]))
        .await
        .assert_refused(400, "invalid_payload");
    world
        .send(Call::post("/set/k").key(MAIN))
        .await
        .assert_refused(400, "invalid_request");
    let long = "k".repeat(513);
    set(&world, &long, json!({"value": 1}))
        .await
        .assert_refused(400, "invalid_key");
    assert_eq!(
        set(&world, &long[1..], json!({"value": 1})).await.status,
        200
    );
}

#[tokio::test]
async fn ip_130_a_key_is_the_decoded_path_segment() {
    let world = World::new();
    assert_eq!(
        set(&world, "my%20k%C3%A9%2Fx", json!({"value": "v"}))
            .await
            .status,
        200
    );
    assert_eq!(
        value(&world, "my%20k%c3%a9%2fx").await.as_deref(),
        Some("v")
    );
    assert_eq!(value(&world, "my%20k%C3%A9").await, None);
}

#[tokio::test]
async fn ip_132_ip_167_keys_of_different_api_keys_never_meet() {
    let world = World::new();
    let (anna, ben) = (world.tester("anna").await, world.tester("ben").await);
    for (key, text) in [(anna.as_str(), "hers"), (MAIN, "mine")] {
        let call = Call::post("/set/k").key(key).json(&json!({"value": text}));
        assert_eq!(world.send(call).await.status, 200);
    }
    let seen = async |key: &str| world.send(Call::get("/get/k").key(key)).await;
    assert_eq!(seen(&anna).await.json()["value"], "hers");
    assert_eq!(seen(MAIN).await.json()["value"], "mine");
    seen(&ben).await.assert_refused(404, "not_found");
}
