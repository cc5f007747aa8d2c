//! Caps on open intents, and rate limits.

use consign_kernel::command::{Admit, Command, NewIntent};
use consign_kernel::ids::SECOND_US;
use consign_kernel::limits;
use consign_kernel::profile::ProfileId;
use serde_json::json;

use crate::sizes::{post, with_payload};
use crate::steps::text;
use crate::world::{Call, MAIN, World};

/// Adds unsettled intents of a key without using its rate limit.
async fn seed(world: &World, key: &str, count: u64) {
    let owner = world.engine.publisher_id(key);
    let item = NewIntent {
        profile: ProfileId::Intent,
        namespace: "default".to_owned(),
        goal: "seeded".to_owned(),
        owner,
        public: false,
        target: None,
        capability: None,
        priority: 100,
        payload: "1".to_owned(),
        ties: consign_kernel::intent::Ties::default(),
        unless: None,
        traceparent: None,
        delay_us: 0,
        ttl_us: limits::INTENT_TTL_US,
        attempts_max: 1,
        backoff_us: SECOND_US,
        once: None,
    };
    let items = (0..count).map(|_| item.clone()).collect();
    let admit = Command::Admit(Admit { items, cap: None });
    world
        .engine
        .execute(None, vec![admit])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
}

#[tokio::test]
async fn ip_094_a_tester_key_may_have_2000_unsettled_intents() {
    let world = World::new();
    let tester = world.tester("full").await;
    seed(&world, &tester, 1_998).await;
    let guarded = Call::post("/intent")
        .key(&tester)
        .header("idempotency-key", "k");
    let last = world.send(guarded.clone().raw(with_payload("0"))).await;
    assert_eq!(last.status, 201);

    let two = format!("{{\"intents\":[{0},{0}]}}", with_payload("1"));
    post(&world, "/intents", &tester, two)
        .await
        .assert_refused(429, "limit_exceeded");
    assert_eq!(
        post(&world, "/intent", &tester, with_payload("1"))
            .await
            .status,
        201,
        "the 2000th"
    );
    post(&world, "/intent", &tester, with_payload("1"))
        .await
        .assert_refused(429, "limit_exceeded");
    let replay = world.send(guarded.raw(with_payload("0"))).await;
    assert_eq!(replay.body, last.body, "nothing new, so nothing to refuse");

    let refused = Call::post("/intent")
        .key(&tester)
        .header("idempotency-key", "later");
    world
        .send(refused.clone().raw(with_payload("1")))
        .await
        .assert_refused(429, "limit_exceeded");
    let job = world.claim_with("/claim", &tester).await.unwrap();
    post(&world, "/intent", &tester, with_payload("1"))
        .await
        .assert_refused(429, "limit_exceeded");
    let done = json!({"claim_token": job["claim_token"]}).to_string();
    let fulfilled = post(
        &world,
        &format!("/fulfill/{}", text(&job["id"])),
        &tester,
        done,
    )
    .await;
    assert_eq!(fulfilled.status, 200);
    let now = world.send(refused.raw(with_payload("2"))).await;
    assert_eq!(
        now.status,
        201,
        "what was refused is not remembered: {}",
        now.text()
    );
    post(&world, "/intent", &tester, with_payload("1"))
        .await
        .assert_refused(429, "limit_exceeded");

    let other = world.tester("empty").await;
    assert_eq!(
        post(&world, "/intent", &other, with_payload("1"))
            .await
            .status,
        201,
        "each key has its own cap"
    );
    // The expiry of the last attempt settles the intent.
    world.claim_with("/claim", &tester).await.unwrap();
    world.clock.advance_s(60);
    world.claim_with("/claim", &tester).await.unwrap();
    assert_eq!(
        post(&world, "/intent", &tester, with_payload("1"))
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn ip_094_the_main_key_has_no_cap_and_no_allowance() {
    let world = World::new();
    seed(&world, MAIN, 2_100).await;
    for _ in 0..70 {
        assert_eq!(
            post(&world, "/intent", MAIN, with_payload("1"))
                .await
                .status,
            201
        );
    }
}

#[tokio::test]
async fn ip_094_a_tester_key_has_60_requests_in_a_minute_from_the_first() {
    let world = World::new();
    let tester = world.tester("busy").await;
    let other = world.tester("calm").await;
    let id = text(
        &post(&world, "/intent", &tester, with_payload("1"))
            .await
            .json()["id"],
    );
    world.clock.advance_s(59);
    // Every request counts once, whatever its kind and its result.
    let mixed = [
        Call::post("/intent").raw("{"),
        Call::post("/claim?namespace=none"),
        Call::get(&format!("/status/{id}")),
        Call::get("/nowhere"),
        Call::get("/claim"),
        Call::post("/fulfill/x").raw("{}"),
        Call::get("/get/none"),
    ];
    for call in mixed.iter().cycle().take(59) {
        assert_ne!(world.send(call.clone().key(&tester)).await.status, 429);
    }
    for call in &mixed {
        let answer = world.send(call.clone().key(&tester)).await;
        answer.assert_refused(429, "rate_limited");
        assert_eq!(answer.json()["error"]["message"], "Too many requests.");
        assert!(
            !answer.headers.contains_key("retry-after"),
            "the existing client would sleep it twice"
        );
    }
    assert_eq!(
        post(&world, "/intent", &other, with_payload("1"))
            .await
            .status,
        201,
        "each key has its own"
    );
    world.clock.advance_us(999_999);
    post(&world, "/intent", &tester, with_payload("1"))
        .await
        .assert_refused(429, "rate_limited");
    world.clock.advance_us(1);
    for _ in 0..60 {
        assert_eq!(
            post(&world, "/claim?namespace=none", &tester, "")
                .await
                .status,
            204
        );
    }
    post(&world, "/claim", &tester, "")
        .await
        .assert_refused(429, "rate_limited");
}

#[tokio::test]
async fn ip_094_a_batch_takes_as_much_of_the_allowance_as_it_has_items() {
    let world = World::new();
    let batch = |count: usize| {
        format!(
            "{{\"intents\":[{}]}}",
            vec![with_payload("1"); count].join(",")
        )
    };
    let tester = world.tester("t").await;
    post(&world, "/intents", &tester, batch(61))
        .await
        .assert_refused(429, "rate_limited");
    assert_eq!(
        post(&world, "/intents", &tester, batch(59)).await.status,
        201,
        "a refused one took nothing"
    );
    post(&world, "/intents", &tester, batch(2))
        .await
        .assert_refused(429, "rate_limited");
    assert_eq!(
        post(&world, "/intents", &tester, batch(1)).await.status,
        201
    );
    post(&world, "/claim", &tester, "")
        .await
        .assert_refused(429, "rate_limited");

    world.clock.advance_s(60);
    let jobs = post(&world, "/claim?max=30", &tester, "").await.json();
    assert_eq!(jobs["intents"].as_array().unwrap().len(), 30);
    let items: Vec<_> = jobs["intents"]
        .as_array()
        .unwrap()
        .iter()
        .take(20)
        .map(|job| json!({"id": job["id"], "claim_token": job["claim_token"], "action": "fulfill"}))
        .collect();
    let settle = |max: u32| json!({"items": items, "claim": {"max": max}}).to_string();
    post(&world, "/settle", &tester, settle(11))
        .await
        .assert_refused(429, "rate_limited");
    let settled = post(&world, "/settle", &tester, settle(10)).await;
    assert_eq!(settled.status, 200, "{}", settled.text());
    post(&world, "/claim", &tester, "")
        .await
        .assert_refused(429, "rate_limited");
}

#[tokio::test]
async fn ip_094_a_refused_batch_publishes_nothing() {
    let world = World::new();
    let tester = world.tester("t").await;
    let batch = format!(
        "{{\"intents\":[{}]}}",
        vec![with_payload("1"); 61].join(",")
    );
    post(&world, "/intents", &tester, batch)
        .await
        .assert_refused(429, "rate_limited");
    assert!(world.claim_with("/claim", &tester).await.is_none());
}
