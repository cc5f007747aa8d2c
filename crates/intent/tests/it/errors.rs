//! Error responses: one format, a status per code, and no details for unauthenticated clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::faulty::{Faults, Faulty};
use crate::world::{Call, MAIN, World};

#[tokio::test]
async fn ip_157_ip_158_ip_159_ip_160_each_code_has_its_status_and_the_one_shape() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    let once = |goal: &str| {
        let call = Call::post("/intent")
            .key(MAIN)
            .header("idempotency-key", "k");
        call.json(&json!({"goal": goal, "payload": 1}))
    };
    assert_eq!(world.send(once("first")).await.status, 201);
    let intent = |body: &str| Call::post("/intent").key(MAIN).raw(body);
    for (call, status, code) in [
        (Call::post("/intent"), 401, "unauthorized"),
        (Call::post("/intent").key("tk_unknown"), 401, "unauthorized"),
        (Call::get("/admin/dead"), 401, "unauthorized"),
        (
            Call::get(&format!("/status/{id}")).key(&tester),
            403,
            "forbidden",
        ),
        (Call::get("/status/none").key(MAIN), 404, "not_found"),
        (Call::get("/nowhere").key(MAIN), 404, "not_found"),
        (intent("{"), 400, "invalid_payload"),
        (intent("[]"), 400, "invalid_payload"),
        (intent("\"text\""), 400, "invalid_payload"),
        (intent(""), 400, "invalid_payload"),
        (intent("{\"goal\":\"g\"} tail"), 400, "invalid_payload"),
        (
            Call::post("/intent")
                .key(MAIN)
                .raw(*b"{\"goal\":\"g\xff\"}"),
            400,
            "invalid_payload",
        ),
        (intent("{\"goal\":\"g\"}"), 400, "invalid_request"),
        (
            Call::post("/intent").key(MAIN).raw(vec![b'x'; 8_193]),
            413,
            "payload_too_large",
        ),
        (once("second"), 422, "idempotency_conflict"),
    ] {
        world.send(call).await.assert_refused(status, code);
    }
}

#[tokio::test]
async fn ip_161_a_spent_allowance_and_a_full_queue_are_both_429() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let batch = |count: usize| {
        let items: Vec<_> = (0..count)
            .map(|_| json!({"goal": "g", "payload": 1}))
            .collect();
        Call::post("/intents")
            .key(&tester)
            .json(&json!({"intents": items}))
    };
    // 60 intents in each of 33 minutes and 20 more reach the limit of 2000 open intents per key.
    for _ in 0..33 {
        assert_eq!(world.send(batch(60)).await.status, 201);
        world
            .send(batch(1))
            .await
            .assert_refused(429, "rate_limited");
        world.clock.advance_s(60);
    }
    assert_eq!(world.send(batch(20)).await.status, 201);
    world
        .send(batch(1))
        .await
        .assert_refused(429, "limit_exceeded");
}

#[tokio::test]
async fn ip_162_a_ledger_in_trouble_is_503_and_tells_no_details() {
    let faults = Arc::new(Faults::default());
    let world = World::over(|store| Faulty::around(store, Arc::clone(&faults)));
    let tester = world.tester("anna").await;
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    for fault in [&faults.queue_full, &faults.disk_gone] {
        fault.store(true, Ordering::SeqCst);
        for call in [
            Call::post("/intent")
                .key(MAIN)
                .json(&json!({"goal": "g", "payload": 1})),
            Call::get(&format!("/status/{id}")).key(MAIN),
            Call::get("/intents").key(MAIN),
            Call::get("/get/k").key(&tester),
            Call::post("/set/k").key(MAIN).json(&json!({"value": 1})),
            Call::post(&format!("/fail/{id}"))
                .key(MAIN)
                .json(&json!({"claim_token": "0".repeat(32)})),
            Call::post("/settle").key(MAIN).json(
                &json!({"items": [{"id": id, "claim_token": "0".repeat(32), "action": "fail"}]}),
            ),
            Call::get("/admin/dead").admin(),
            Call::post("/admin/generate_key").admin(),
            Call::get("/metrics").admin(),
        ] {
            let answer = world.send(call).await;
            answer.assert_refused(503, "database_busy");
            assert_eq!(answer.headers["retry-after"], "1");
            assert!(!answer.text().contains("secret"), "{}", answer.text());
        }
        fault.store(false, Ordering::SeqCst);
    }
    assert_eq!(
        world.status(&id).await["status"],
        "open",
        "and afterwards all is well"
    );
}

#[tokio::test(start_paused = true)]
async fn health_is_503_while_the_ledger_does_not_answer_and_asks_it_once_a_second() {
    let faults = Arc::new(Faults::default());
    let world = World::over(|store| Faulty::around(store, Arc::clone(&faults)));
    let health = async || world.send(Call::get("/health")).await;
    assert_eq!(health().await.status, 200);
    faults.disk_gone.store(true, Ordering::SeqCst);
    assert_eq!(health().await.status, 200, "as it was a moment ago");
    tokio::time::advance(Duration::from_secs(1)).await;
    let before = faults.reads.load(Ordering::SeqCst);
    for _ in 0..20 {
        let refused = health().await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        let body = refused.json();
        assert_eq!(body["error"]["code"], "database_busy");
        // Besides the error, the body names the unhealthy part.
        assert_eq!(body["ok"], false);
        assert_eq!(body["ledger"], "unreadable");
        assert_eq!(refused.headers["retry-after"], "1");
        assert!(!refused.text().contains("secret"), "{}", refused.text());
    }
    let after = faults.reads.load(Ordering::SeqCst);
    assert_eq!(after - before, 1, "nobody makes it work harder by asking");

    faults.disk_gone.store(false, Ordering::SeqCst);
    faults.queue_full.store(true, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(1)).await;
    let busy = health().await;
    assert_eq!(busy.status, 200, "who says that it is busy answers");
    assert_eq!(busy.json()["ok"], true);
}

#[tokio::test]
async fn ip_162_maintenance_is_503() {
    let world = World::with(|options| options.maintenance = true);
    world
        .main_get("/status/x")
        .await
        .assert_refused(503, "maintenance");
}

#[tokio::test]
async fn ip_157_ip_158_a_stranger_learns_nothing_of_what_exists() {
    let world = World::new();
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    for (method, path) in [
        (Method::GET, "/nowhere"),
        (Method::GET, "/status/none"),
        (Method::GET, &format!("/status/{id}")),
        (Method::DELETE, "/intent"),
        (Method::POST, "/admin/nowhere"),
        (Method::DELETE, "/admin/dead"),
    ] {
        world
            .send(Call::new(method.clone(), path))
            .await
            .assert_refused(401, "unauthorized");
        let known = Call::new(method, path)
            .key("tk_unknown")
            .header("x-admin-token", "wrong");
        world.send(known).await.assert_refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn ip_157_a_wrong_method_is_405_and_names_the_right_ones() {
    let world = World::new();
    for (method, path, allow) in [
        (Method::GET, "/intent", "POST"),
        (Method::PUT, "/claim", "POST"),
        (Method::POST, "/status/x", "GET,HEAD"),
        (Method::DELETE, "/intents", "GET,HEAD,POST"),
        (Method::POST, "/health", "GET,HEAD"),
        (Method::POST, "/metrics", "GET,HEAD"),
    ] {
        let answer = world.send(Call::new(method.clone(), path).key(MAIN)).await;
        answer.assert_refused(405, "method_not_allowed");
        let mut allowed: Vec<_> = answer.headers["allow"]
            .to_str()
            .unwrap()
            .split(',')
            .collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{method} {path}");
    }
    let admin = world.send(Call::get("/admin/purge").admin()).await;
    admin.assert_refused(405, "method_not_allowed");
    assert_eq!(admin.headers["allow"], "POST");
}

#[tokio::test]
async fn ip_187_every_client_endpoint_is_there() {
    let world = World::new();
    for (method, path) in [
        ("GET", "/health"),
        ("POST", "/intent"),
        ("POST", "/claim"),
        ("POST", "/extend_claim/x"),
        ("POST", "/fulfill/x"),
        ("POST", "/fail/x"),
        ("GET", "/result/x"),
        ("GET", "/status/x"),
        ("POST", "/set/x"),
        ("GET", "/get/x"),
        ("GET", "/metrics"),
    ] {
        let answer = world
            .send(Call::new(method.parse().unwrap(), path).key(MAIN))
            .await;
        assert_ne!(answer.status, 405, "{path}");
        assert!(!answer.text().contains("nothing at this path"), "{path}");
    }
    let unknown = world.main_get("/fulfil/x").await;
    assert!(unknown.text().contains("nothing at this path"));
}

#[tokio::test]
async fn ip_158_nobody_publishes_or_claims_in_the_namespaces_of_other_faces() {
    let world = World::new();
    for namespace in ["beam.x", "beam.", "mesh.peer"] {
        let body = json!({"goal": "g", "payload": 1, "namespace": namespace});
        world
            .main_post("/intent", &body)
            .await
            .assert_refused(403, "forbidden");
        let batch = world
            .main_post("/intents", &json!({"intents": [body]}))
            .await;
        batch.assert_refused(403, "forbidden");
        assert_eq!(batch.json()["error"]["index"], 0);
        let claim = world
            .send(Call::post(&format!("/claim?namespace={namespace}")).key(MAIN))
            .await;
        claim.assert_refused(403, "forbidden");
        let settle = json!({"items": [{"id": "x"}], "claim": {"namespace": namespace}});
        world
            .main_post("/settle", &settle)
            .await
            .assert_refused(403, "forbidden");
    }
    for namespace in ["beam", "mesh", "beams.x", "my.beam.x"] {
        world
            .publish(json!({"goal": "g", "payload": 1, "namespace": namespace}))
            .await;
    }
}
