//! Concurrent requests: no request waits for another, and no intent is leased twice.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;

use crate::lifecycle::job;
use crate::steps::text;
use crate::world::{MAIN, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ip_004_ip_021_claimers_at_once_share_no_intent_and_count_each_claim_once() {
    const INTENTS: usize = 40;
    let world = Arc::new(World::new());
    for _ in 0..INTENTS {
        world.publish(job(3)).await;
    }
    for round in 1..=2 {
        let claimers: Vec<_> = (0..8)
            .map(|_| {
                let world = Arc::clone(&world);
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    while let Some(job) = world.claim().await {
                        taken.push(job);
                    }
                    taken
                })
            })
            .collect();
        let (mut ids, mut tokens) = (HashSet::new(), HashSet::new());
        for claimer in claimers {
            for job in claimer.await.unwrap() {
                assert_eq!(job["claim_attempts"], round);
                assert!(ids.insert(text(&job["id"])), "given out twice");
                assert!(
                    tokens.insert(text(&job["claim_token"])),
                    "one token for two leases"
                );
            }
        }
        assert_eq!(ids.len(), INTENTS);
        world.clock.advance_s(60);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ip_003_a_request_that_waits_holds_nobody_up() {
    let world = Arc::new(World::new());
    let waiting = tokio::spawn({
        let world = Arc::clone(&world);
        async move {
            world
                .claim_with("/claim?namespace=quiet&wait=30", MAIN)
                .await
        }
    });
    while world.engine.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    let others = (0..32).map(|_| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            world.publish(job(3)).await;
            world
                .claim()
                .await
                .expect("there are as many as there are claimers")
        })
    });
    for other in others.collect::<Vec<_>>() {
        other.await.unwrap();
    }
    assert!(!waiting.is_finished());
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "namespace": "quiet"}))
        .await;
    assert_eq!(waiting.await.unwrap().unwrap()["id"], id.as_str());
}
