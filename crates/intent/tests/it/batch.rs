//! `POST /intents`: many intents in one request, with the rules of a single publish.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Answer, Call, MAIN, World};

async fn publish(world: &World, items: &[Value]) -> Answer {
    world
        .main_post("/intents", &json!({"intents": items}))
        .await
}

async fn open_goals(world: &World) -> Vec<String> {
    let list = world.main_get("/intents").await.json();
    list["intents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|intent| text(&intent["goal"]))
        .collect()
}

#[tokio::test]
async fn a_batch_is_published_in_its_order_with_an_answer_per_item() {
    let world = World::new();
    let items = [
        json!({"goal": "a", "payload": 1, "namespace": "n"}),
        json!({"goal": "b", "payload": {"x": null}, "priority": 9}),
    ];
    let answer = publish(&world, &items).await;
    assert_eq!(answer.status, 201);
    let published = answer.json()["intents"].as_array().unwrap().clone();
    assert_eq!(
        published[0],
        json!({"id": published[0]["id"], "status": "published", "namespace": "n"})
    );
    assert_eq!(published[1]["namespace"], "default");
    let job = world.claim().await.unwrap();
    assert_eq!(
        (&job["id"], &job["payload"], &job["priority"]),
        (&published[1]["id"], &json!({"x": null}), &json!(9))
    );
}

#[tokio::test]
async fn one_bad_item_keeps_the_whole_batch_out_and_is_named_by_its_index() {
    let world = World::new();
    let good = json!({"goal": "good", "payload": 1});
    for (bad, status, code) in [
        (json!({"goal": "g"}), 400, "invalid_request"),
        (json!({"goal": "", "payload": 1}), 400, "invalid_goal"),
        (
            json!({"goal": "g", "payload": 1, "priority": 1_001}),
            400,
            "invalid_priority",
        ),
        (
            json!({"goal": "g", "payload": "x".repeat(7_167)}),
            413,
            "payload_too_large",
        ),
        (
            json!({"goal": "g", "payload": 1, "extra": "x".repeat(8_192)}),
            413,
            "payload_too_large",
        ),
        (
            json!({"goal": "g", "payload": 1, "idempotency_key": 5}),
            400,
            "invalid_idempotency_key",
        ),
        (
            json!({"goal": "g", "payload": 1, "idempotency_key": ""}),
            400,
            "invalid_idempotency_key",
        ),
        (
            json!({"goal": "g", "payload": 1, "idempotency_key": "k".repeat(256)}),
            400,
            "invalid_idempotency_key",
        ),
        (json!(7), 400, "invalid_payload"),
        (Value::Null, 400, "invalid_payload"),
    ] {
        let answer = publish(&world, &[good.clone(), good.clone(), bad, good.clone()]).await;
        answer.assert_refused(status, code);
        assert_eq!(answer.json()["error"]["index"], 2, "{code}");
    }
    assert_eq!(open_goals(&world).await, [""; 0]);
}

#[tokio::test]
async fn a_batch_has_1_to_100_items_in_at_most_a_mebibyte() {
    let world = World::new();
    let item = json!({"goal": "g", "payload": 1});
    for body in [
        json!({}),
        json!({"intents": []}),
        json!({"intents": {}}),
        json!({"intents": null}),
        json!({"intents": vec![&item; 101]}),
    ] {
        world
            .main_post("/intents", &body)
            .await
            .assert_refused(400, "invalid_request");
    }
    assert_eq!(publish(&world, &vec![item; 100]).await.status, 201);

    let padded = |bytes: usize| {
        let mut body = br#"{"intents":[{"goal":"padded","payload":1}]}"#.to_vec();
        body.resize(bytes, b' ');
        Call::post("/intents").key(MAIN).raw(body)
    };
    world
        .send(padded((1 << 20) + 1))
        .await
        .assert_refused(413, "payload_too_large");
    assert_eq!(world.send(padded(1 << 20)).await.status, 201);
}

#[tokio::test]
async fn an_item_of_a_batch_and_a_single_publish_share_their_idempotency_keys() {
    let world = World::new();
    let single = async |body: &str| {
        let call = Call::post("/intent")
            .key(MAIN)
            .header("idempotency-key", "k");
        world.send(call.raw(body)).await
    };
    let first = single(r#"{"payload": {"b": 1, "a": "\u00e9"}, "goal": "g"}"#).await;
    let item = json!({"goal": "g", "idempotency_key": "k", "payload": {"a": "é", "b": 1}});
    let batch = publish(&world, &[json!({"goal": "new", "payload": 1}), item]).await;
    assert_eq!(batch.status, 201, "{}", batch.text());
    assert_eq!(
        batch.json()["intents"][1],
        first.json(),
        "the same intent, answered again"
    );
    assert_eq!(open_goals(&world).await, ["new", "g"]);

    let other = json!({"goal": "other", "payload": 1, "idempotency_key": "k"});
    let conflict = publish(&world, &[json!({"goal": "never", "payload": 1}), other]).await;
    conflict.assert_refused(422, "idempotency_conflict");
    assert_eq!(conflict.json()["error"]["index"], 1);
    assert_eq!(open_goals(&world).await, ["new", "g"], "all or nothing");
}

#[tokio::test]
async fn a_key_used_first_in_a_batch_guards_later_items_and_single_publishes() {
    let world = World::new();
    let item = json!({"goal": "g", "payload": 1, "idempotency_key": "k"});
    let twice = publish(&world, &[item.clone(), item.clone()]).await.json();
    assert_eq!(twice["intents"][0], twice["intents"][1]);
    let single = Call::post("/intent")
        .key(MAIN)
        .header("idempotency-key", "k");
    let single = world
        .send(single.json(&json!({"payload": 1, "goal": "g"})))
        .await;
    assert_eq!(single.json(), twice["intents"][0]);
    let mut changed = item.clone();
    changed["payload"] = json!(2);
    publish(&world, &[changed])
        .await
        .assert_refused(422, "idempotency_conflict");
    assert_eq!(open_goals(&world).await, ["g"]);
}

#[tokio::test]
async fn a_batch_takes_as_much_of_the_allowance_as_it_has_items() {
    let world = World::new();
    let key = world.tester("anna").await;
    let batch = async |count: usize| {
        let body = json!({"intents": vec![json!({"goal": "g", "payload": 1}); count]});
        world
            .send(Call::post("/intents").key(&key).json(&body))
            .await
    };
    assert_eq!(batch(50).await.status, 201);
    batch(11).await.assert_refused(429, "rate_limited");
    let claim = world.send(Call::post("/claim?max=11").key(&key)).await;
    claim.assert_refused(429, "rate_limited");
    let items = vec![json!({"id": "x", "claim_token": "t", "action": "fail"}); 5];
    let body = json!({"items": items, "claim": {"max": 6}});
    world
        .send(Call::post("/settle").key(&key).json(&body))
        .await
        .assert_refused(429, "rate_limited");
    let claim = world.send(Call::post("/claim?max=10").key(&key)).await;
    assert_eq!(
        claim.json()["intents"].as_array().unwrap().len(),
        10,
        "refused requests took nothing"
    );
    assert_eq!(batch(1).await.status, 429);
}

#[tokio::test]
async fn a_trace_context_goes_with_every_item_of_a_batch() {
    let world = World::new();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = json!({"intents": vec![json!({"goal": "g", "payload": 1}); 2]});
    world
        .send(
            Call::post("/intents")
                .key(MAIN)
                .header("traceparent", trace)
                .json(&body),
        )
        .await;
    for _ in 0..2 {
        assert_eq!(world.claim().await.unwrap()["traceparent"], trace);
    }
}
