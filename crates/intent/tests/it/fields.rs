//! The fields of an intent: bounds, defaults and invalid values.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Answer, Call, MAIN, World};

/// A publish with one field given as JSON text, so that no serialiser normalises it.
async fn with(world: &World, field: &str, token: &str) -> Answer {
    let mut members = vec![format!("\"{field}\":{token}")];
    for (name, token) in [("goal", "\"g\""), ("payload", "1")] {
        if name != field {
            members.push(format!("\"{name}\":{token}"));
        }
    }
    let body = format!("{{{}}}", members.join(","));
    world.send(Call::post("/intent").key(MAIN).raw(body)).await
}

/// The field in the admin view after a publish that must succeed.
async fn stored(world: &World, field: &str, token: &str) -> Value {
    let answer = with(world, field, token).await;
    assert_eq!(answer.status, 201, "{field} {token}: {}", answer.text());
    world.detail(&text(&answer.json()["id"])).await[field].clone()
}

async fn refused(world: &World, field: &str, token: &str, code: &str) {
    let answer = with(world, field, token).await;
    assert_eq!(answer.status, 400, "{field} {token}: {}", answer.text());
    answer.assert_refused(400, code);
}

/// JSON of every type except those named, and strings that are not valid text.
fn wrong_types(but: &[&str]) -> Vec<&'static str> {
    let all = [
        ("string", "\"x y\""),
        ("string", "\"\\ud800\""),
        ("string", "\"\""),
        ("number", "12"),
        ("number", "-1e400"),
        ("bool", "true"),
        ("bool", "false"),
        ("array", "[]"),
        ("array", "[\"x\"]"),
        ("object", "{}"),
        ("object", "{\"a\":1}"),
    ];
    all.iter()
        .filter(|(kind, _)| !but.contains(kind))
        .map(|(_, token)| *token)
        .collect()
}

#[tokio::test]
async fn ip_032_ip_089_a_goal_has_one_to_256_characters() {
    let world = World::new();
    let longest = "é".repeat(256);
    let cases = [
        ("\"g\"", "g"),
        ("\" \\t g h \\n\"", "g h"),
        ("\"a\\u0000b\"", "a\u{0}b"),
        ("\"\\ud83d\\ude00\"", "😀"),
        (&format!("\"{longest}\""), &longest),
        (&format!("\"  {longest}  \""), &longest),
    ];
    for (token, goal) in cases {
        assert_eq!(stored(&world, "goal", token).await, goal);
    }
    for token in [
        "\"\"",
        "\"   \"",
        "\"\\u00a0\"",
        "null",
        &format!("\"{longest}é\""),
    ] {
        refused(&world, "goal", token, "invalid_goal").await;
    }
    for token in wrong_types(&["string"]) {
        refused(&world, "goal", token, "invalid_goal").await;
    }
    refused(&world, "goal", "\"\\udc00\"", "invalid_goal").await;
}

#[tokio::test]
async fn ip_032_ip_089_without_goal_or_payload_nothing_is_published() {
    let world = World::new();
    for body in [
        json!({}),
        json!({"goal": "g"}),
        json!({"payload": 1}),
        json!({"Goal": "g", "payload": 1}),
    ] {
        world
            .main_post("/intent", &body)
            .await
            .assert_refused(400, "invalid_request");
    }
    assert!(world.claim().await.is_none());
}

#[tokio::test]
async fn ip_035_ip_074_a_namespace_is_default_or_1_to_64_plain_characters() {
    let world = World::new();
    let bare = world.publish(json!({"goal": "g", "payload": 1})).await;
    assert_eq!(world.status(&bare).await["namespace"], "default");
    assert_eq!(stored(&world, "namespace", "null").await, "default");
    for name in ["a", "A-Za_z.0-9", "..", "-", &"n".repeat(64)] {
        assert_eq!(
            stored(&world, "namespace", &json!(name).to_string()).await,
            name
        );
    }
    for name in [
        "",
        " ",
        "a b",
        "a/b",
        "é",
        "a\u{0}",
        "a\n",
        "n:1",
        &"n".repeat(65),
    ] {
        refused(
            &world,
            "namespace",
            &json!(name).to_string(),
            "invalid_namespace",
        )
        .await;
    }
    for token in wrong_types(&[]) {
        refused(&world, "namespace", token, "invalid_namespace").await;
    }
    for name in ["a%20b", "%C3%A9", "a/b", &"n".repeat(65)] {
        let claim = Call::post(&format!("/claim?namespace={name}")).key(MAIN);
        world
            .send(claim)
            .await
            .assert_refused(400, "invalid_namespace");
    }
}

#[tokio::test]
async fn ip_036_visibility_is_private_unless_public_is_asked_for() {
    let world = World::new();
    let bare = world.publish(json!({"goal": "g", "payload": 1})).await;
    assert_eq!(world.status(&bare).await["visibility"], "private");
    for (token, kept) in [
        ("null", "private"),
        ("\"private\"", "private"),
        ("\"public\"", "public"),
    ] {
        assert_eq!(stored(&world, "visibility", token).await, kept);
    }
    for token in ["\"Public\"", "\"\"", "\"protected\"", "\"public \""] {
        refused(&world, "visibility", token, "invalid_visibility").await;
    }
    for token in wrong_types(&[]) {
        refused(&world, "visibility", token, "invalid_visibility").await;
    }
}

#[tokio::test]
async fn ip_037_priority_is_a_whole_number_from_0_to_1000_and_100_by_default() {
    let world = World::new();
    let bare = world.publish(json!({"goal": "g", "payload": 1})).await;
    assert_eq!(world.status(&bare).await["priority"], 100);
    for (token, kept) in [
        ("null", 100),
        ("0", 0),
        ("1000", 1000),
        ("7.0", 7),
        ("1e3", 1000),
        ("-0", 0),
    ] {
        assert_eq!(stored(&world, "priority", token).await, kept, "{token}");
    }
    for token in [
        "-1",
        "1001",
        "0.5",
        "1e4",
        "18446744073709551616",
        "1e999999999999999999",
        "\"5\"",
    ] {
        refused(&world, "priority", token, "invalid_priority").await;
    }
    for token in wrong_types(&["number"]) {
        refused(&world, "priority", token, "invalid_priority").await;
    }
}

#[tokio::test]
async fn ip_038_a_delay_postpones_the_claim_by_exactly_that_much() {
    let world = World::new();
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "delay": 2.5}))
        .await;
    let detail = world.detail(&id).await;
    let delay = detail["run_at"].as_f64().unwrap() - detail["created_at"].as_f64().unwrap();
    assert!((delay - 2.5).abs() < 1e-6);
    world.clock.advance_us(2_499_999);
    assert!(world.claim().await.is_none());
    world.clock.advance_us(1);
    assert_eq!(world.claim().await.unwrap()["id"], id.as_str());

    for token in ["null", "0", "0.0", "-0.0", "1e-9"] {
        let id = text(&with(&world, "delay", token).await.json()["id"]);
        assert_eq!(
            world.claim().await.unwrap()["id"],
            id.as_str(),
            "{token} is no delay"
        );
    }
    // With a delay as long as its lifetime, an intent would expire before it is claimable.
    assert_eq!(with(&world, "delay", "86399.9").await.status, 201);
    for token in ["-0.001", "86400", "86399.9999999", "1e400", "\"5\""] {
        refused(&world, "delay", token, "invalid_delay").await;
    }
    for token in wrong_types(&["number"]) {
        refused(&world, "delay", token, "invalid_delay").await;
    }
}

#[tokio::test]
async fn ip_039_max_attempts_is_drawn_into_1_to_20() {
    let world = World::new();
    let digits = "9".repeat(400);
    let cases = [
        ("1", 1),
        ("20", 20),
        ("2.0", 2),
        ("0", 1),
        ("-5", 1),
        ("21", 20),
        ("1000000", 20),
        ("99999999999999999999999", 20),
        (&digits, 20),
        (&format!("-{digits}"), 1),
    ];
    for (token, kept) in cases {
        assert_eq!(stored(&world, "max_attempts", token).await, kept, "{token}");
    }
    for token in ["2.5", "\"3\"", "1e400", "1e-400"] {
        refused(&world, "max_attempts", token, "invalid_max_attempts").await;
    }
    for token in wrong_types(&["number"]) {
        refused(&world, "max_attempts", token, "invalid_max_attempts").await;
    }
}

#[tokio::test]
async fn ip_040_backoff_base_is_drawn_into_1_to_3600_seconds() {
    let world = World::new();
    let cases = [
        ("1", 1.0),
        ("3600.0", 3600.0),
        ("0.01", 1.0),
        ("-3", 1.0),
        ("1e9", 3600.0),
        ("1.5", 1.5),
    ];
    for (token, kept) in cases {
        assert_eq!(stored(&world, "backoff_base", token).await, kept, "{token}");
    }
    for token in ["1e400", "\"5\""] {
        refused(&world, "backoff_base", token, "invalid_backoff_base").await;
    }
    for token in wrong_types(&["number"]) {
        refused(&world, "backoff_base", token, "invalid_backoff_base").await;
    }
}

#[tokio::test]
async fn ip_041_ip_042_labels_are_absent_or_1_to_64_plain_characters() {
    let world = World::new();
    for (field, code) in [
        ("target_worker", "invalid_target_worker"),
        ("required_capability", "invalid_required_capability"),
    ] {
        for token in [
            "null",
            "\"w\"",
            "\"A_z.0:9-\"",
            &format!("\"{}\"", "w".repeat(64)),
        ] {
            let kept: Value = serde_json::from_str(token).unwrap();
            assert_eq!(stored(&world, field, token).await, kept);
        }
        for label in ["", " ", "a b", "a,b", "é", "a\u{0}", &"w".repeat(65)] {
            refused(&world, field, &json!(label).to_string(), code).await;
        }
        for token in wrong_types(&[]) {
            refused(&world, field, token, code).await;
        }
    }
    let world = World::new();
    let body =
        json!({"goal": "g", "payload": 1, "target_worker": null, "required_capability": null});
    let given_null = world.publish(body).await;
    let absent = world.publish(json!({"goal": "g", "payload": 1})).await;
    for id in [given_null, absent] {
        let job = world.claim().await.unwrap();
        assert_eq!(job["id"], id.as_str(), "any worker may have it");
        assert_eq!(
            (&job["target_worker"], &job["required_capability"]),
            (&Value::Null, &Value::Null)
        );
    }
}
