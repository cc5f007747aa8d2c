//! `POST /intent`: accepted bodies, values that are stored unchanged, and the responses to hostile bodies.

use serde_json::{Value, json};

use crate::steps::{keys_as_written, text};
use crate::world::{Answer, Call, MAIN, World};

pub(crate) async fn post(world: &World, body: impl Into<Vec<u8>>) -> Answer {
    world.send(Call::post("/intent").key(MAIN).raw(body)).await
}

#[tokio::test]
async fn ip_085_health_needs_no_key_and_tells_time_and_version() {
    let world = World::with(|options| {
        (
            options.require_signatures,
            options.maintenance,
            options.enforce_https,
        ) = (true, true, true);
    });
    let mut call = Call::get("/health");
    call.peer = "203.0.113.9:1".to_owned();
    let answer = world.send(call).await;
    assert_eq!(answer.status, 200);
    let body = answer.json();
    assert_eq!(body["ok"], true);
    assert_eq!(body["ts"].as_f64(), Some(1_800_000_000.0));
    assert_eq!(body["version"], "7.61");
}

#[tokio::test]
async fn ip_086_ip_087_the_two_required_fields_are_enough_and_the_answer_names_the_intent() {
    let world = World::new();
    let answer = world
        .main_post("/intent", &json!({"goal": "g", "payload": {}}))
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        keys_as_written(&answer.text()),
        ["id", "status", "namespace"]
    );
    let id = text(&answer.json()["id"]);
    assert_eq!(
        answer.json(),
        json!({"id": id, "status": "published", "namespace": "default"})
    );
    let named = world
        .main_post(
            "/intent",
            &json!({"goal": "g", "payload": {}, "namespace": "n"}),
        )
        .await;
    assert_eq!(named.json()["namespace"], "n");
    let stranger = json!({"goal": "g", "payload": 1, "unknown": {"a": [1]}, "": 0});
    assert_eq!(
        world.main_post("/intent", &stranger).await.status,
        201,
        "unknown fields are let be"
    );
    assert_eq!(world.claim().await.unwrap()["id"], id.as_str());
}

#[tokio::test]
async fn ip_088_ip_041_ip_042_the_protocols_sample_with_its_nulls_is_for_any_worker_of_the_key() {
    let sample = json!({
        "goal": "send_email", "payload": {"to": "user@example.com"}, "namespace": "default",
        "visibility": "private", "priority": 100, "delay": 0.0, "max_attempts": 3,
        "backoff_base": 5.0, "target_worker": null, "required_capability": null,
    });
    let all_null = json!({
        "goal": "send_email", "payload": {"to": "user@example.com"}, "namespace": null,
        "visibility": null, "priority": null, "delay": null, "max_attempts": null,
        "backoff_base": null, "target_worker": null, "required_capability": null,
    });
    let world = World::new();
    for body in [sample, all_null] {
        let id = world.publish(body).await;
        let detail = world.detail(&id).await;
        let expected = json!({
            "namespace": "default", "visibility": "private", "priority": 100, "max_attempts": 3,
            "backoff_base": 5.0, "target_worker": null, "required_capability": null,
        });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&detail[field], value, "{field}");
        }
        let job = world
            .claim_with("/claim?goal=send_email", MAIN)
            .await
            .unwrap();
        assert_eq!(job["id"], id.as_str());
    }
}

#[tokio::test]
async fn ip_084_a_json_body_is_understood_whatever_its_content_type() {
    let world = World::new();
    let kinds = [
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "é",
    ];
    let body = r#"{"goal":"g","payload":1}"#;
    assert_eq!(post(&world, body).await.status, 201);
    for kind in kinds {
        let call = Call::post("/intent")
            .key(MAIN)
            .header("content-type", kind)
            .raw(body);
        assert_eq!(world.send(call).await.status, 201, "{kind}");
    }
    let (id, token) = world
        .leased(json!({"goal": "last", "payload": 1, "priority": 999}))
        .await;
    let call = Call::post(&format!("/fulfill/{id}"))
        .key(MAIN)
        .raw(format!("{{\"claim_token\":\"{token}\"}}"));
    assert_eq!(world.send(call).await.status, 200);
}

#[tokio::test]
async fn ip_083_answers_are_json_unless_the_protocol_says_otherwise() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.main_post("/set/k", &json!({"value": "v"})).await;
    let json_answers = [
        world
            .main_post("/intent", &json!({"goal": "g", "payload": 1}))
            .await,
        world.main_post("/claim", &json!({})).await,
        world.act("extend_claim", &id, &token).await,
        world.main_get(&format!("/status/{id}")).await,
        world.main_get(&format!("/result/{id}")).await,
        world.main_get("/get/k").await,
        world.act("fail", &id, &token).await,
        world.act("fulfill", &id, &token).await,
        world.main_get("/get/none").await,
        world.main_get("/nowhere").await,
        world.main_get("/intent").await,
        world.send(Call::get("/health")).await,
        world.send(Call::post("/intent")).await,
        world.admin_get("/admin/dead").await,
        world.admin_post("/admin/cleanup", &json!({})).await,
        world.send(Call::get("/admin/dead")).await,
        world.send(Call::get("/metrics")).await,
    ];
    for answer in json_answers {
        assert_eq!(
            answer.headers["content-type"],
            "application/json",
            "{}",
            answer.text()
        );
        answer.json();
    }
    let nothing = world.claim_with("/claim?goal=none", MAIN).await;
    assert!(nothing.is_none());
    assert_eq!(
        world.admin_get("/metrics").await.headers["content-type"],
        "text/plain; charset=utf-8"
    );
    let page = world.admin_get("/admin/dashboard").await;
    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
}

#[tokio::test]
async fn ip_033_any_json_value_reaches_the_worker_with_every_token_as_sent() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let values = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.0",
        "1.50",
        "1E5",
        "1e400",
        "123456789012345678901234567890.12345678901234567890",
        "9007199254740993",
        "18446744073709551616",
        r#""""#,
        r#""\u0000""#,
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud83d\ude00 😀 \/ / \u00e9 é""#,
        "\"\u{7f}\u{2028}</script>\"",
        "[]",
        "{}",
        r#"{"":{"":[]}}"#,
        r#"{"a":1,"a":2,"\u0061":3}"#,
        r#"{"\ud800":1,"b":2}"#,
        r#"{"b":1,"a":2,"B":3}"#,
        r#"{"id":"x","claim_token":"y"}"#,
        &deep,
    ];
    for value in values {
        let published = post(&world, format!("{{\"goal\":\"g\",\"payload\":{value}}}")).await;
        assert_eq!(published.status, 201, "{value}: {}", published.text());
        let answer = world.send(Call::post("/claim").key(MAIN)).await;
        assert_eq!(answer.status, 200);
        let tail = format!(",\"payload\":{value}}}");
        assert!(
            answer.text().ends_with(&tail),
            "{value} became {}",
            answer.text()
        );
        let head = answer.text().replace(&tail, "}");
        let head: Value = serde_json::from_str(&head).unwrap();
        assert_eq!(head["id"], published.json()["id"]);
        let detail = world
            .admin_get(&format!("/admin/intents/{}", text(&head["id"])))
            .await;
        assert!(
            detail.text().contains(&format!("\"payload\":{value},")),
            "{}",
            detail.text()
        );
    }
}

#[tokio::test]
async fn ip_033_white_space_between_tokens_is_all_that_is_dropped() {
    let world = World::new();
    let body = "\r\n{ \"payload\" :\t[ 1 , { \"a b\" : \" \\t \" } ] , \"goal\" : \"g\" }\n ";
    assert_eq!(post(&world, body).await.status, 201);
    let answer = world.send(Call::post("/claim").key(MAIN)).await;
    assert!(
        answer.text().ends_with(r#","payload":[1,{"a b":" \t "}]}"#),
        "{}",
        answer.text()
    );
}
