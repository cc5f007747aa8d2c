//! The options of the operator that affect responses, and the limits of tester keys.

use serde_json::json;

use crate::world::{Answer, Call, MAIN, World};

const REMOTE: &str = "192.0.2.7:40000";

fn from(peer: &str, call: Call) -> Call {
    Call {
        peer: peer.to_owned(),
        ..call
    }
}

async fn answered(world: &World, call: Call) -> u16 {
    let answer = world.send(call).await;
    if answer.status == 403 {
        answer.assert_refused(403, "https_required");
    }
    answer.status.as_u16()
}

#[tokio::test]
async fn ip_171_ip_175_enforced_https_turns_plain_requests_away_but_for_programs_on_this_machine() {
    let world = World::with(|options| options.enforce_https = true);
    let claim = || Call::post("/claim").key(MAIN);
    assert_eq!(answered(&world, from(REMOTE, claim())).await, 403);
    assert_eq!(
        answered(
            &world,
            Call {
                tls: true,
                ..from(REMOTE, claim())
            }
        )
        .await,
        204
    );
    assert_eq!(answered(&world, claim()).await, 204, "loopback");
    assert_eq!(answered(&world, from("[::1]:40000", claim())).await, 204);
    for path in ["/admin/dead", "/metrics"] {
        assert_eq!(
            answered(&world, from(REMOTE, Call::get(path).admin())).await,
            403,
            "{path}"
        );
    }
    for path in ["/", "/health"] {
        assert_eq!(
            answered(&world, from(REMOTE, Call::get(path))).await,
            200,
            "{path}"
        );
    }
    let plain = World::new();
    assert_eq!(
        answered(&plain, from(REMOTE, claim())).await,
        204,
        "only where it is enforced"
    );
}

#[tokio::test]
async fn ip_170_forwarding_headers_count_behind_a_trusted_proxy_and_nowhere_else() {
    let claim = |scheme: &str| {
        let call = Call::post("/claim")
            .key(MAIN)
            .header("x-forwarded-for", "198.51.100.9");
        from(REMOTE, call.header("x-forwarded-proto", scheme))
    };
    let trusting =
        World::with(|options| (options.enforce_https, options.trust_proxy) = (true, true));
    assert_eq!(answered(&trusting, claim("https")).await, 204);
    assert_eq!(answered(&trusting, claim("http")).await, 403);
    assert_eq!(
        answered(&trusting, claim("https, http")).await,
        403,
        "the nearest proxy is believed"
    );
    let wary = World::with(|options| options.enforce_https = true);
    assert_eq!(
        answered(&wary, claim("https")).await,
        403,
        "anybody can write that header"
    );
    // A request that a local proxy forwards comes from a remote client and is not exempt as local.
    let through = Call {
        peer: "127.0.0.1:40000".to_owned(),
        ..claim("http")
    };
    assert_eq!(answered(&trusting, through.clone()).await, 403);
    assert_eq!(answered(&wary, through).await, 403);
}

#[tokio::test]
async fn ip_172_maintenance_blocks_clients_and_nobody_else() {
    let world = World::with(|options| options.maintenance = true);
    for (method, path) in [
        ("POST", "/intent"),
        ("POST", "/claim"),
        ("GET", "/status/x"),
        ("POST", "/set/x"),
        ("GET", "/intents"),
        ("GET", "/events"),
        ("GET", "/nowhere"),
    ] {
        for call in [
            Call::new(method.parse().unwrap(), path).key(MAIN),
            Call::new(method.parse().unwrap(), path),
        ] {
            world.send(call).await.assert_refused(503, "maintenance");
        }
    }
    for call in [
        Call::get("/"),
        Call::get("/health"),
        Call::get("/admin/dashboard").admin(),
        Call::get("/admin/dead").admin(),
        Call::get("/metrics").admin(),
    ] {
        let what = call.uri.clone();
        assert_eq!(world.send(call).await.status, 200, "{what}");
    }
    world
        .send(Call::get("/admin/dead"))
        .await
        .assert_refused(401, "unauthorized");
}

async fn look(world: &World, key: &str) -> Answer {
    world.send(Call::get("/get/none").key(key)).await
}

#[tokio::test]
async fn ip_176_a_tester_has_60_requests_in_a_minute_from_its_first() {
    let world = World::new();
    let (anna, ben) = (world.tester("anna").await, world.tester("ben").await);
    for number in 1..=60 {
        look(&world, &anna).await.assert_refused(404, "not_found");
        if number == 1 {
            world.clock.advance_s(10);
        }
    }
    let refused = look(&world, &anna).await;
    refused.assert_refused(429, "rate_limited");
    assert_eq!(refused.json()["error"]["message"], "Too many requests.");
    look(&world, &ben).await.assert_refused(404, "not_found");
    world.clock.advance_s(49);
    look(&world, &anna)
        .await
        .assert_refused(429, "rate_limited");
    world.clock.advance_s(1);
    for _ in 0..60 {
        look(&world, &anna).await.assert_refused(404, "not_found");
    }
    look(&world, &anna)
        .await
        .assert_refused(429, "rate_limited");
}

#[tokio::test]
async fn ip_176_requests_that_fail_their_own_checks_count_too() {
    let world = World::new();
    let anna = world.tester("anna").await;
    for _ in 0..60 {
        let broken = Call::post("/intent").key(&anna).raw("{");
        world
            .send(broken)
            .await
            .assert_refused(400, "invalid_payload");
    }
    let broken = Call::post("/intent").key(&anna).raw("{");
    world.send(broken).await.assert_refused(429, "rate_limited");
}

#[tokio::test]
async fn ip_177_the_main_key_has_neither_allowance_nor_cap() {
    let world = World::new();
    for _ in 0..150 {
        look(&world, MAIN).await.assert_refused(404, "not_found");
    }
    let items: Vec<_> = (0..100)
        .map(|_| json!({"goal": "g", "payload": 1}))
        .collect();
    for _ in 0..21 {
        let answer = world
            .main_post("/intents", &json!({"intents": items}))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

#[tokio::test]
async fn ip_178_a_tester_has_2000_open_intents_and_settling_one_makes_room() {
    let world = World::new();
    let anna = world.tester("anna").await;
    let batch = async |count: usize| {
        let items: Vec<_> = (0..count)
            .map(|_| json!({"goal": "g", "payload": 1}))
            .collect();
        let call = Call::post("/intents")
            .key(&anna)
            .json(&json!({"intents": items}));
        world.send(call).await
    };
    for _ in 0..40 {
        assert_eq!(batch(49).await.status, 201);
        world.clock.advance_s(60);
    }
    batch(41).await.assert_refused(429, "limit_exceeded");
    world.clock.advance_s(60);
    assert_eq!(
        batch(40).await.status,
        201,
        "the refused batch left nothing behind"
    );
    world.clock.advance_s(60);
    batch(1).await.assert_refused(429, "limit_exceeded");
    // A claimed intent counts as open, a settled one does not.
    let job = world.claim_with("/claim", &anna).await.unwrap();
    batch(1).await.assert_refused(429, "limit_exceeded");
    let done = Call::post(&format!("/fulfill/{}", job["id"].as_str().unwrap())).key(&anna);
    assert_eq!(
        world
            .send(done.json(&json!({"claim_token": job["claim_token"]})))
            .await
            .status,
        200
    );
    assert_eq!(batch(1).await.status, 201);
    batch(1).await.assert_refused(429, "limit_exceeded");
}

#[tokio::test]
async fn health_needs_no_key_and_tells_three_things_of_the_protocol() {
    let world = World::new();
    let body = world.send(Call::get("/health")).await.json();
    assert_eq!(
        (&body["ok"], &body["version"]),
        (&json!(true), &json!("7.61"))
    );
    assert!(body["ts"].as_f64().unwrap() > 1.7e9);
    assert!(body["consign_version"].is_string());
}
