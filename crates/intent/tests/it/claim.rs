//! `POST /claim`: which intents a worker can claim, and the response to a claim.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::steps::{keys_as_written, text};
use crate::world::{Call, MAIN, World};

async fn claimed_goal(world: &World, uri: &str) -> Option<String> {
    let job = world.claim_with(uri, MAIN).await;
    job.map(|job| text(&job["goal"]))
}

#[tokio::test]
async fn ip_095_ip_163_many_claimers_at_once_share_the_intents_without_a_collision() {
    let world = World::new();
    for priority in 0..10 {
        let body = json!({"goal": "g", "payload": 1, "priority": priority});
        world.publish(body).await;
    }
    let claims = (0..20).map(|_| world.claim());
    let jobs: Vec<Value> = join_all(claims).await.into_iter().flatten().collect();

    let ids: HashSet<_> = jobs.iter().map(|job| text(&job["id"])).collect();
    assert_eq!((jobs.len(), ids.len()), (10, 10));
    assert!(jobs.iter().all(|job| job["claim_attempts"] == 1));
}

async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|cx| {
        waiting.retain_mut(|future| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done
}

#[tokio::test]
async fn ip_095_the_best_intent_is_locked_before_the_answer_leaves() {
    let world = World::new();
    for (goal, priority) in [("low", 1), ("best", 900), ("middle", 500)] {
        let body = json!({"goal": goal, "payload": 1, "priority": priority});
        world.publish(body).await;
    }
    let job = world.claim().await.unwrap();
    assert_eq!(job["goal"], "best");
    let status = world.status(job["id"].as_str().unwrap()).await;
    assert_eq!(status["status"], "claimed");
    assert_eq!(status["claim_attempts"], 1);
    assert_eq!(claimed_goal(&world, "/claim").await.unwrap(), "middle");
}

#[tokio::test]
async fn ip_096_a_goal_filters_exactly_and_no_goal_means_all() {
    let world = World::new();
    world.publish(json!({"goal": "send", "payload": 1})).await;
    for other in ["sen", "send%20mail", "Send", "send%2A"] {
        let uri = format!("/claim?goal={other}");
        assert_eq!(claimed_goal(&world, &uri).await, None, "{other}");
    }
    // Trimmed on both sides, like the goal at publish.
    let spaced = claimed_goal(&world, "/claim?goal=%20send%20").await;
    assert_eq!(spaced.as_deref(), Some("send"));

    world.publish(json!({"goal": "any", "payload": 1})).await;
    let empty = claimed_goal(&world, "/claim?goal=").await;
    assert_eq!(empty.as_deref(), Some("any"));
}

#[tokio::test]
async fn ip_097_an_intent_is_offered_from_its_run_at_on_and_not_before() {
    let world = World::new();
    let body = json!({"goal": "later", "payload": 1, "delay": 30});
    world.publish(body).await;
    world.clock.advance_us(29_999_999);
    assert!(world.claim().await.is_none());
    world.clock.advance_us(1);
    assert_eq!(world.claim().await.unwrap()["goal"], "later");
}

#[tokio::test]
async fn ip_098_an_intent_is_offered_for_24_hours_and_no_longer() {
    for (age_s, offered) in [(86_399, true), (86_400, false)] {
        let world = World::new();
        world.publish(json!({"goal": "g", "payload": 1})).await;
        world.clock.advance_s(age_s);
        assert_eq!(world.claim().await.is_some(), offered, "{age_s} s");
    }
}

#[tokio::test]
async fn ip_099_an_intent_out_of_attempts_is_never_offered_again() {
    let world = World::new();
    let body = json!({"goal": "g", "payload": 1, "max_attempts": 2});
    let id = world.publish(body).await;
    for attempt in 1..=2 {
        assert_eq!(world.claim().await.unwrap()["claim_attempts"], attempt);
        world.clock.advance_s(61);
    }
    assert!(world.claim().await.is_none());
    world.clock.advance_s(3_600);
    assert!(world.claim().await.is_none());
    assert_eq!(world.status(&id).await["status"], "dead");
}

#[tokio::test]
async fn ip_100_a_lapsed_lease_is_offered_at_once_with_no_cleanup_in_between() {
    let world = World::new();
    let (id, first) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.clock.advance_us(59_999_999);
    assert!(world.claim().await.is_none());
    world.clock.advance_us(1);
    let job = world.claim().await.unwrap();
    assert_eq!(
        (job["id"].as_str().unwrap(), &job["claim_attempts"]),
        (id.as_str(), &json!(2))
    );
    assert_ne!(job["claim_token"], first.as_str());
}

#[tokio::test]
async fn ip_101_the_publisher_filter_is_the_main_keys_for_any_key_and_a_testers_for_its_own() {
    let world = World::new();
    let (anna, ben) = (world.tester("anna").await, world.tester("ben").await);
    for key in [&anna, &ben] {
        let body = json!({"goal": "private", "payload": 1});
        world.send(Call::post("/intent").key(key).json(&body)).await;
    }
    let named = |key: &str| format!("/claim?publisher={key}");

    let foreign = world.send(Call::post(&named(&ben)).key(&anna)).await;
    foreign.assert_refused(403, "forbidden");
    assert!(world.claim_with(&named(&anna), &anna).await.is_some());
    // The filter replaces the visibility rule, so the main key reaches a private intent by naming its key.
    assert!(world.claim().await.is_none());
    assert!(world.claim_with(&named(&ben), MAIN).await.is_some());
    assert!(world.claim_with(&named(&ben), MAIN).await.is_none());
}

#[tokio::test]
async fn ip_102_worker_id_and_capabilities_may_come_in_the_query_but_headers_win() {
    let world = World::new();
    let body =
        json!({"goal": "g", "payload": 1, "target_worker": "w-1", "required_capability": "gpu"});
    let offered = async |uri: &str, headers: &[(&str, &str)]| {
        world.publish(body.clone()).await;
        let mut call = Call::post(uri).key(MAIN);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let found = world.send(call).await.status == 200;
        world
            .admin_post("/admin/purge", &json!({"confirm": true}))
            .await;
        found
    };
    assert!(offered("/claim?worker_id=w-1&capabilities=cpu,gpu", &[]).await);
    assert!(offered("/claim?worker_id=w-1&capability=gpu", &[]).await);
    assert!(!offered("/claim?worker_id=w-1", &[]).await);
    assert!(!offered("/claim?capabilities=gpu", &[]).await);
    let headers = [
        ("x-worker-id", "w-1"),
        ("x-worker-capabilities", " cpu , gpu "),
    ];
    assert!(offered("/claim", &headers).await);
    assert!(offered("/claim?worker_id=w-2&capabilities=cpu", &headers).await);
    let wrong = [("x-worker-id", "w-2"), ("x-worker-capabilities", "cpu")];
    assert!(!offered("/claim?worker_id=w-1&capabilities=gpu", &wrong).await);
}

#[tokio::test]
async fn ip_103_ip_104_a_claim_hands_over_all_its_fields_with_id_and_token_before_the_payload() {
    let world = World::new();
    let body = json!({"goal": "g", "namespace": "n1", "priority": 7, "payload": {"id": "not this", "claim_token": "nor this"},
        "target_worker": "w-1", "required_capability": "gpu"});
    let id = world.publish(body).await;
    let call = Call::post("/claim?namespace=n1&worker_id=w-1&capabilities=gpu").key(MAIN);
    let answer = world.send(call).await;
    let job = answer.json();
    let token = text(&job["claim_token"]);
    let expected = json!({"id": id, "claim_token": token, "namespace": "n1", "goal": "g", "claim_attempts": 1,
        "payload": {"id": "not this", "claim_token": "nor this"}, "priority": 7, "target_worker": "w-1",
        "required_capability": "gpu", "claim_timeout": 60});
    answer.assert_ok(&expected);
    assert!(
        token.len() == 32
            && token
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    );
    // Workers without a JSON parser extract the first id and the first token.
    let wire = answer.text();
    assert!(wire.starts_with('{') && !wire.contains('\n'));
    let keys = keys_as_written(&wire);
    assert_eq!(keys[..2], ["id", "claim_token"]);
    assert_eq!(keys.last().unwrap(), "payload");
}

#[tokio::test]
async fn ip_104_no_two_claims_share_a_token_not_even_of_one_intent() {
    let world = World::new();
    let mut tokens = HashSet::new();
    world
        .publish(json!({"goal": "g", "payload": 1, "max_attempts": 20}))
        .await;
    for _ in 0..20 {
        let job = world.claim().await.unwrap();
        assert!(
            tokens.insert(text(&job["claim_token"])),
            "a token came twice"
        );
        world.clock.advance_s(61);
    }
    assert_eq!(tokens.len(), 20);
}

#[tokio::test]
async fn ip_105_with_nothing_to_claim_the_answer_is_204_retry_after_1_and_no_body() {
    let world = World::new();
    for uri in [
        "/claim",
        "/claim?goal=nothing",
        "/claim?max=5",
        "/claim?namespace=empty",
    ] {
        let answer = world.send(Call::post(uri).key(MAIN)).await;
        assert_eq!(answer.status, 204, "{uri}");
        assert_eq!(answer.headers["retry-after"], "1");
        assert!(answer.body.is_empty());
    }
}

#[tokio::test]
async fn a_claim_with_max_takes_the_best_ones_in_order() {
    let world = World::new();
    for priority in [3, 1, 2, 5, 4] {
        let body = json!({"goal": "g", "payload": priority, "priority": priority});
        world.publish(body).await;
    }
    let answer = world.send(Call::post("/claim?max=3").key(MAIN)).await;
    assert_eq!(answer.status, 200);
    let jobs = answer.json();
    let taken: Vec<_> = jobs["intents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| &job["payload"])
        .collect();
    assert_eq!(taken, [5, 4, 3]);
    let rest = world.claim_with("/claim?max=100", MAIN).await.unwrap();
    assert_eq!(rest["intents"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_claim_that_asks_for_nonsense_is_told_what_was_wrong() {
    let world = World::new();
    for (query, status, code) in [
        ("namespace=a%2Fb", 400, "invalid_namespace"),
        ("max=0", 400, "invalid_max"),
        ("max=101", 400, "invalid_max"),
        ("max=two", 400, "invalid_max"),
        ("wait=-1", 400, "invalid_wait"),
        ("wait=30.5", 400, "invalid_wait"),
        ("wait=NaN", 400, "invalid_wait"),
        ("wait=inf", 400, "invalid_wait"),
        ("namespace=beam.orders", 403, "forbidden"),
        ("namespace=mesh.peer", 403, "forbidden"),
    ] {
        let answer = world
            .send(Call::post(&format!("/claim?{query}")).key(MAIN))
            .await;
        answer.assert_refused(status, code);
    }
    assert!(
        world
            .claim_with("/claim?namespace=beam", MAIN)
            .await
            .is_none()
    );
}

#[tokio::test]
async fn a_publishers_trace_context_reaches_the_worker_and_a_broken_one_does_not() {
    let world = World::new();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (sent, handed) in [(trace, json!(trace)), ("not a trace", Value::Null)] {
        let body = json!({"goal": "g", "payload": 1});
        let call = Call::post("/intent")
            .key(MAIN)
            .header("traceparent", sent)
            .json(&body);
        assert_eq!(world.send(call).await.status, 201);
        assert_eq!(world.claim().await.unwrap()["traceparent"], handed);
    }
}
