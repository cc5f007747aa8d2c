//! The guarantees of section 12 of the protocol.

use std::collections::HashSet;

use serde_json::json;

use crate::steps::text;
use crate::world::{Call, MAIN, World};

const NOBODY: &str = "00000000000000000000000000000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_163_claims_racing_on_several_threads_have_one_winner_each() {
    let world = std::sync::Arc::new(World::new());
    for _ in 0..30 {
        world.publish(json!({"goal": "g", "payload": 1})).await;
    }
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move {
                let mut mine = Vec::new();
                while let Some(job) = world.claim().await {
                    mine.push(text(&job["id"]));
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for racer in racers {
        all.extend(racer.await.unwrap());
    }
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (30, 30));
}

#[tokio::test]
async fn ip_164_ip_188_a_lease_opens_to_its_own_token_and_to_no_other() {
    let world = World::new();
    let (first, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let (second, other) = world.leased(json!({"goal": "g", "payload": 1})).await;
    for path in ["extend_claim", "fulfill", "fail"] {
        for (id, wrong) in [(&first, &other), (&second, &token)] {
            for wrong in [wrong.as_str(), NOBODY] {
                let answer = world
                    .main_post(&format!("/{path}/{id}"), &json!({"claim_token": wrong}))
                    .await;
                answer.assert_refused(404, "not_found");
            }
        }
    }
    let settled = world
        .main_post(&format!("/fulfill/{first}"), &json!({"claim_token": token}))
        .await;
    assert_eq!(settled.status, 200);
}

#[tokio::test]
async fn ip_164_tokens_share_no_pattern() {
    let world = World::new();
    let mut tokens = Vec::new();
    for _ in 0..64 {
        let (_, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
        tokens.push(token);
    }
    // A constant digit or a counter would have few distinct values at its position.
    for place in 0..32 {
        let digits: HashSet<_> = tokens.iter().map(|token| token.as_bytes()[place]).collect();
        assert!(
            digits.len() > 8,
            "place {place} has only {} values",
            digits.len()
        );
    }
}

#[tokio::test]
async fn ip_165_the_wait_doubles_with_each_attempt() {
    let world = World::new();
    let body = json!({"goal": "g", "payload": 1, "max_attempts": 6, "backoff_base": 100});
    let id = world.publish(body).await;
    for wait_s in [200, 400, 800, 1_600, 3_200] {
        let job = world.claim().await.unwrap();
        world
            .main_post(
                &format!("/fail/{id}"),
                &json!({"claim_token": job["claim_token"]}),
            )
            .await;
        world.clock.advance_s(wait_s - 1);
        assert!(world.claim().await.is_none(), "before {wait_s} s");
        world.clock.advance_s(3);
    }
    assert_eq!(world.claim().await.unwrap()["claim_attempts"], 6);
}

#[tokio::test]
async fn ip_166_an_exhausted_intent_is_archived_however_its_last_attempt_ended() {
    let world = World::new();
    let failed = world.dead_letter("failed", "gave up").await;
    let (silent, _) = world
        .leased(json!({"goal": "silent", "payload": 1, "max_attempts": 1}))
        .await;
    world.clock.advance_s(61);
    let letters = world.admin_get("/admin/dead").await.json();
    let found: Vec<(String, String)> = letters
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| (text(&letter["intent_id"]), text(&letter["reason"])))
        .collect();
    let expected = [
        (silent, "Max retries exceeded".to_owned()),
        (failed, "gave up".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn ip_075_ip_167_neither_private_nor_public_intents_cross_namespaces() {
    let world = World::new();
    for visibility in ["private", "public"] {
        let body = json!({"goal": "g", "payload": 1, "namespace": "a", "visibility": visibility});
        world.publish(body).await;
        for namespace in ["default", "b", "A", "a.b"] {
            let uri = format!("/claim?namespace={namespace}");
            assert!(
                world.claim_with(&uri, MAIN).await.is_none(),
                "{visibility} in {namespace}"
            );
        }
        assert!(world.claim_with("/claim?namespace=a", MAIN).await.is_some());
    }
}

#[tokio::test]
async fn ip_076_ip_167_a_private_intent_is_for_its_own_key_alone() {
    let world = World::new();
    let (anna, ben) = (world.tester("anna").await, world.tester("ben").await);
    let body = json!({"goal": "g", "payload": 1});
    world
        .send(Call::post("/intent").key(&anna).json(&body))
        .await;
    for (uri, key) in [
        ("/claim", ben.as_str()),
        ("/claim?goal=g", &ben),
        ("/claim", MAIN),
        ("/claim?goal=g", MAIN),
    ] {
        assert!(world.claim_with(uri, key).await.is_none(), "{uri}");
    }
    assert!(world.claim_with("/claim", &anna).await.is_some());
}
