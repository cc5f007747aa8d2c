//! The five headers of every response.

use serde_json::json;

use crate::world::{Answer, Call, MAIN, World};

const FIVE: [(&str, &str); 5] = [
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("x-intent-version", "2.1"),
];

#[track_caller]
fn assert_five(answer: &Answer, what: &str) {
    for (name, value) in FIVE {
        let found: Vec<_> = answer.headers.get_all(name).iter().collect();
        assert_eq!(found, [value], "{name} of {what}");
    }
}

#[tokio::test]
async fn ip_152_ip_153_ip_154_ip_155_ip_156_ip_186_every_kind_of_answer_carries_the_five_headers() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    let put = http::Method::PUT;
    for (status, call) in [
        (200, Call::get("/")),
        (200, Call::get("/health")),
        (200, Call::get("/.well-known/jwks.json")),
        (200, Call::get(&format!("/status/{id}")).key(MAIN)),
        (200, Call::get("/admin/dashboard").admin()),
        (200, Call::get("/metrics").admin()),
        (
            201,
            Call::post("/intent")
                .key(MAIN)
                .json(&json!({"goal": "g", "payload": 1, "namespace": "n"})),
        ),
        (204, Call::post("/claim?namespace=empty").key(MAIN)),
        (400, Call::post("/intent").key(MAIN).raw("{")),
        (401, Call::post("/intent")),
        (401, Call::get("/admin/dashboard")),
        (401, Call::get("/metrics")),
        (403, Call::get(&format!("/status/{id}")).key(&tester)),
        (404, Call::get("/nowhere").key(MAIN)),
        (405, Call::new(put, "/intent").key(MAIN)),
        (413, Call::post("/intent").key(MAIN).raw(vec![b' '; 8_193])),
        (
            422,
            Call::post("/intent")
                .key(MAIN)
                .header("idempotency-key", "k")
                .json(&json!({"goal": "b", "payload": 1})),
        ),
    ] {
        if status == 422 {
            let first = Call::post("/intent")
                .key(MAIN)
                .header("idempotency-key", "k");
            world
                .send(first.json(&json!({"goal": "a", "payload": 1})))
                .await;
        }
        let what = format!("{} {}", call.method, call.uri);
        let answer = world.send(call).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert_five(&answer, &what);
    }
}

#[tokio::test]
async fn ip_152_ip_156_a_refusal_of_the_whole_server_carries_them_too() {
    let world = World::with(|options| options.maintenance = true);
    let answer = world.main_get("/status/x").await;
    answer.assert_refused(503, "maintenance");
    assert_five(&answer, "maintenance");
}

#[tokio::test]
async fn ip_155_an_event_stream_is_not_stored_either() {
    let world = World::new();
    let response = world.respond(Call::get("/events").key(MAIN)).await;
    for (name, value) in FIVE {
        assert_eq!(response.headers()[name], value);
    }
}

#[tokio::test]
async fn every_answer_names_its_request() {
    let world = World::new();
    let given = world
        .send(Call::get("/health").header("x-request-id", "r-1.a:b_c"))
        .await;
    assert_eq!(given.headers["x-request-id"], "r-1.a:b_c");
    let crooked = world
        .send(Call::get("/health").header("x-request-id", "two words"))
        .await;
    assert_eq!(crooked.headers["x-request-id"].len(), 32);
}

#[tokio::test]
async fn a_204_has_no_body_and_json_says_that_it_is_json() {
    let world = World::new();
    let empty = world.send(Call::post("/claim").key(MAIN)).await;
    assert!(empty.body.is_empty() && !empty.headers.contains_key("content-type"));
    let health = world.send(Call::get("/health")).await;
    assert_eq!(health.headers["content-type"], "application/json");
}
