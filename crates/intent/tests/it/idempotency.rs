//! Repeated publishes with one Idempotency-Key.

use serde_json::json;

use crate::steps::text;
use crate::world::{Answer, Call, MAIN, World};

const BODY: &str = r#"{"goal":"g","payload":{"a":1,"b":[true,null]},"priority":5}"#;

async fn publish(world: &World, key: &str, once: &str, body: &str) -> Answer {
    world
        .send(
            Call::post("/intent")
                .key(key)
                .header("idempotency-key", once)
                .raw(body),
        )
        .await
}

/// The number of open intents, counted by claiming them.
async fn waiting(world: &World) -> usize {
    let mut count = 0;
    while world.send(Call::post("/claim").key(MAIN)).await.status == 200 {
        count += 1;
    }
    count
}

/// Publishes both with one key: either the same answer twice and one intent, or a conflict.
async fn check(first: &str, second: &str, same: bool) {
    let world = World::new();
    let one = publish(&world, MAIN, "k", first).await;
    assert_eq!(one.status, 201, "{first}: {}", one.text());
    let two = publish(&world, MAIN, "k", second).await;
    if same {
        assert_eq!(two.status, 201, "{first} {second}: {}", two.text());
        assert_eq!(two.body, one.body, "{first} {second}");
    } else {
        assert_eq!(two.status, 422, "{first} {second}: {}", two.text());
        two.assert_refused(422, "idempotency_conflict");
        assert!(
            two.json()["error"].get("index").is_none(),
            "there is but one item"
        );
    }
    assert_eq!(waiting(&world).await, 1, "{first} {second}");
}

#[tokio::test]
async fn ip_091_equal_json_gets_the_first_answer_again_and_makes_nothing_new() {
    let big = "123456789012345678901234567890";
    let cases = [
        (BODY, BODY),
        (
            BODY,
            r#"{"priority":5,"payload":{"b":[true,null],"a":1},"goal":"g"}"#,
        ),
        (
            BODY,
            " {\n\"goal\" : \"g\",\t\"payload\": { \"a\": 1, \"b\": [ true, null ] }, \"priority\": 5 } ",
        ),
        (
            BODY,
            r#"{"goal":"\u0067","payload":{"\u0061":1,"b":[true,null]},"priority":5}"#,
        ),
        (
            r#"{"goal":"g","payload":"é😀/"}"#,
            r#"{"goal":"g","payload":"\u00e9\ud83d\ude00\/"}"#,
        ),
        (
            r#"{"goal":"g","payload":{"a":1,"a":2}}"#,
            r#"{"goal":"g","payload":{"a":2}}"#,
        ),
        (
            r#"{"goal":"x","payload":1,"goal":"g"}"#,
            r#"{"goal":"g","payload":1}"#,
        ),
        (
            r#"{"goal":"g","payload":"\ud800"}"#,
            r#"{"payload":"\uD800","goal":"g"}"#,
        ),
        (
            r#"{"goal":"g","payload":1e400}"#,
            r#"{"payload":1e400,"goal":"g"}"#,
        ),
        (
            &format!("{{\"goal\":\"g\",\"payload\":{big}}}"),
            &format!("{{\"payload\":{big},\"goal\":\"g\"}}"),
        ),
    ];
    for (first, second) in cases {
        check(first, second, true).await;
    }
}

#[tokio::test]
async fn ip_092_another_body_under_the_same_key_is_a_conflict() {
    let payload = |token: &str| format!("{{\"goal\":\"g\",\"payload\":{token}}}");
    let pairs = [
        ("1", "2"),
        ("1", "\"1\""),
        ("null", "false"),
        ("[]", "{}"),
        ("[1,2]", "[2,1]"),
        ("{\"a\":1}", "{\"A\":1}"),
        ("{\"a\":1}", "{\"a\":1,\"b\":null}"),
        ("{\"a\":1,\"a\":2}", "{\"a\":1}"),
        ("\"\\ud800\"", "\"\\ud801\""),
        ("\"\\ud800\"", "\"\\ufffd\""),
        ("\"e\\u0301\"", "\"é\""),
        ("\"a\\u0000\"", "\"a\""),
        // These are equal as doubles. Numbers are compared as written.
        ("9007199254740993", "9007199254740992"),
        ("1e400", "2e400"),
        ("0.1", "0.10000000000000000001"),
        ("1", "1.0"),
        ("100", "1e2"),
    ];
    for (first, second) in pairs {
        check(&payload(first), &payload(second), false).await;
    }
    check(
        BODY,
        r#"{"goal":"g2","payload":{"a":1,"b":[true,null]},"priority":5}"#,
        false,
    )
    .await;
    check(
        BODY,
        r#"{"goal":"g","payload":{"a":1,"b":[true,null]}}"#,
        false,
    )
    .await;
    check(
        BODY,
        r#"{"goal":"g","payload":{"a":1,"b":[true,null]},"priority":5,"delay":null}"#,
        false,
    )
    .await;
}

#[tokio::test]
async fn ip_093_the_same_idempotency_key_under_another_api_key_is_another_one() {
    let world = World::new();
    let (one, other) = (world.tester("one").await, world.tester("other").await);
    let mut ids = Vec::new();
    for key in [MAIN, &one, &other] {
        let first = publish(&world, key, "k", BODY).await;
        assert_eq!(first.status, 201);
        ids.push(text(&first.json()["id"]));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let different = publish(&world, &one, "k", r#"{"goal":"g","payload":2}"#).await;
    different.assert_refused(422, "idempotency_conflict");
}

#[tokio::test]
async fn ip_091_the_first_answer_is_given_whatever_became_of_the_intent() {
    let world = World::new();
    let first = publish(&world, MAIN, "k", BODY).await;
    let job = world.claim().await.unwrap();
    assert_eq!(
        publish(&world, MAIN, "k", BODY).await.body,
        first.body,
        "claimed"
    );
    let id = text(&job["id"]);
    world.act("fulfill", &id, &text(&job["claim_token"])).await;
    world.clock.advance_s(3_599);
    world.admin_post("/admin/cleanup", &json!({})).await;
    assert_eq!(
        publish(&world, MAIN, "k", BODY).await.body,
        first.body,
        "fulfilled, almost an hour later"
    );
    assert!(world.claim().await.is_none());
    world.clock.advance_s(86_400 - 3_599);
    let fresh = publish(&world, MAIN, "k", BODY).await;
    assert_eq!(fresh.status, 201);
    assert_ne!(fresh.body, first.body, "a day later the key is forgotten");
}

#[tokio::test]
async fn ip_091_ip_092_only_success_is_remembered() {
    let world = World::new();
    for (body, status) in [
        ("{", 400),
        (r#"{"goal":"","payload":1}"#, 400),
        (r#"{"goal":"g"}"#, 400),
    ] {
        assert_eq!(publish(&world, MAIN, "k", body).await.status, status);
    }
    let first = publish(&world, MAIN, "k", BODY).await;
    assert_eq!(first.status, 201, "{}", first.text());
    // The body is validated before the key is looked up.
    let invalid = publish(&world, MAIN, "k", r#"{"goal":"","payload":1}"#).await;
    invalid.assert_refused(400, "invalid_goal");
    publish(&world, MAIN, "k", r#"{"goal":"g","payload":2}"#)
        .await
        .assert_refused(422, "idempotency_conflict");
    assert_eq!(
        publish(&world, MAIN, "k", BODY).await.body,
        first.body,
        "a conflict changes nothing"
    );
}

#[tokio::test]
async fn ip_091_keys_are_1_to_255_visible_characters_and_told_apart_exactly() {
    let world = World::new();
    let longest = "k".repeat(255);
    for key in ["K", "k ey", "k/e:y", "'\"\\", &longest] {
        assert_eq!(publish(&world, MAIN, key, BODY).await.status, 201, "{key}");
        assert_eq!(
            publish(&world, MAIN, key, r#"{"goal":"g","payload":0}"#)
                .await
                .status,
            422,
            "{key}"
        );
    }
    assert_eq!(
        publish(&world, MAIN, "k", r#"{"goal":"g","payload":0}"#)
            .await
            .status,
        201,
        "k is not K"
    );
    for key in [&"k".repeat(256), &"k".repeat(100_000), "ké"] {
        publish(&world, MAIN, key, BODY)
            .await
            .assert_refused(400, "invalid_idempotency_key");
    }
    let before = waiting(&world).await;
    assert_eq!(before, 6);
    for _ in 0..2 {
        assert_eq!(publish(&world, MAIN, "", BODY).await.status, 201);
    }
    assert_eq!(waiting(&world).await, 2, "an empty key is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ip_091_of_publishers_at_once_one_makes_the_intent_and_all_get_its_answer() {
    let world = std::sync::Arc::new(World::new());
    let publishers: Vec<_> = (0..16)
        .map(|_| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { publish(&world, MAIN, "k", BODY).await })
        })
        .collect();
    let mut bodies = std::collections::HashSet::new();
    for publisher in publishers {
        let answer = publisher.await.unwrap();
        assert_eq!(answer.status, 201);
        bodies.insert(answer.body);
    }
    assert_eq!(bodies.len(), 1);
    assert_eq!(waiting(&world).await, 1);
}

#[tokio::test]
async fn ip_091_ip_092_an_item_of_a_batch_and_a_single_publish_share_their_keys() {
    let world = World::new();
    let single = publish(&world, MAIN, "k", BODY).await;
    let item = format!("{{\"idempotency_key\":\"k\",{}", &BODY[1..]);
    let fresh = r#"{"goal":"new","payload":1,"idempotency_key":"n"}"#;
    let batch = format!("{{\"intents\":[{item},{fresh},{fresh}]}}");
    let call = Call::post("/intents").key(MAIN).raw(batch);
    let answer = world.send(call).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let intents = answer.json()["intents"].clone();
    assert_eq!(intents[0], single.json());
    assert_eq!(
        intents[1], intents[2],
        "one key twice in a batch is one intent"
    );
    assert_eq!(
        publish(&world, MAIN, "n", r#"{"payload":1,"goal":"new"}"#)
            .await
            .json(),
        intents[1]
    );

    let clash = r#"{"intents":[{"goal":"other","payload":1},{"goal":"new","payload":2,"idempotency_key":"n"}]}"#;
    let answer = world
        .send(Call::post("/intents").key(MAIN).raw(clash))
        .await;
    answer.assert_refused(422, "idempotency_conflict");
    assert_eq!(answer.json()["error"]["index"], 1);
    assert_eq!(waiting(&world).await, 2, "all of a batch or none");
}

#[tokio::test]
async fn ip_091_other_routes_pay_no_heed_to_the_key() {
    let world = World::new();
    for value in ["one", "two"] {
        let call = Call::post("/set/x")
            .key(MAIN)
            .header("idempotency-key", "k");
        assert_eq!(
            world.send(call.json(&json!({"value": value}))).await.status,
            200
        );
        assert_eq!(world.main_get("/get/x").await.json()["value"], value);
    }
    assert_eq!(publish(&world, MAIN, "k", BODY).await.status, 201);
}
