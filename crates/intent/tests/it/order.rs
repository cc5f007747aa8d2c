//! The order in which intents are leased.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::routing::publish_as;
use crate::world::{MAIN, World};

/// The sort key of the claim order, from the admin view.
async fn rank(world: &World, id: &str) -> (Reverse<i64>, i64, i64, i64, String) {
    let detail = world.detail(id).await;
    let whole = |field: &str| {
        detail[field]
            .as_f64()
            .map(|seconds| seconds.to_bits().cast_signed())
            .unwrap()
    };
    (
        Reverse(detail["priority"].as_i64().unwrap()),
        whole("run_at"),
        detail["claim_attempts"].as_i64().unwrap(),
        whole("created_at"),
        id.to_owned(),
    )
}

#[tokio::test]
async fn ip_078_ip_037_the_order_is_priority_then_due_then_attempts_then_age_then_id() {
    let world = World::new();
    let stranger = world.tester("stranger").await;
    let mut ids = Vec::new();
    let mut draw = 1_u32;
    let mut pick = |of: u32| {
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (draw >> 16) % of
    };
    for burst in 0..4 {
        for nth in 0..24 {
            let body = json!({
                "goal": (["a", "b"][pick(2) as usize]), "payload": 1, "max_attempts": 20,
                "priority": ([0, 99, 100, 101, 1000][pick(5) as usize]),
                // Delays are multiples of 5 s, so that many intents become due at the same instant.
                "delay": 5 * pick(4),
                "visibility": "public",
                "target_worker": ([None, None, Some("w")][pick(3) as usize]),
                "required_capability": ([None, Some("c1"), Some("c2")][pick(3) as usize]),
            });
            let key = if nth % 3 == 0 { &stranger } else { MAIN };
            ids.push(publish_as(&world, key, body).await);
        }
        // Some are claimed and not settled, so that attempts differ among otherwise equal intents.
        for _ in 0..5 * burst {
            world
                .claim_with("/claim?worker_id=w&capabilities=c1,c2", MAIN)
                .await;
        }
        world.clock.advance_s(5);
    }
    world.clock.advance_s(120);
    let mut ranks = Vec::new();
    for id in &ids {
        ranks.push(rank(&world, id).await);
    }
    ranks.sort();
    let attempted = ranks.iter().filter(|rank| rank.2 > 0).count();
    assert!(attempted > 10, "{attempted}");
    for expected in ranks {
        let job = world
            .claim_with("/claim?worker_id=w&capabilities=c1,c2", MAIN)
            .await
            .unwrap();
        assert_eq!(job["id"], expected.4.as_str(), "{expected:?}");
    }
    assert!(
        world
            .claim_with("/claim?worker_id=w&capabilities=c1,c2", MAIN)
            .await
            .is_none()
    );
}

#[tokio::test]
async fn ip_078_each_rule_decides_when_those_before_it_are_equal() {
    let plain = json!({"goal": "g", "payload": 1});
    let with = |field: &str, value: Value| {
        let mut body = plain.clone();
        body[field] = value;
        body
    };
    // The rule, the first publish, the seconds until the second, the second publish, and whether the second is claimed first.
    let cases = [
        (
            "priority",
            with("priority", json!(100)),
            9,
            with("priority", json!(101)),
            true,
        ),
        (
            "due time",
            with("delay", json!(20)),
            9,
            with("delay", json!(5)),
            true,
        ),
        (
            "priority before due time",
            with("priority", json!(101)),
            9,
            plain.clone(),
            false,
        ),
        ("age", plain.clone(), 1, plain.clone(), false),
        (
            "age when due together",
            with("delay", json!(10)),
            5,
            with("delay", json!(5)),
            false,
        ),
        ("id", plain.clone(), 0, plain.clone(), false),
    ];
    for (rule, first, gap_s, second, second_wins) in cases {
        let world = World::new();
        let first = world.publish(first).await;
        world.clock.advance_s(gap_s);
        let second = world.publish(second).await;
        world.clock.advance_s(30);
        let winner = if second_wins { second } else { first };
        assert_eq!(
            world.claim().await.unwrap()["id"],
            winner.as_str(),
            "{rule}"
        );
    }
    let world = World::new();
    let tried = world.publish(plain.clone()).await;
    let fresh = world.publish(plain).await;
    assert_eq!(world.claim().await.unwrap()["id"], tried.as_str());
    world.clock.advance_s(60);
    assert_eq!(
        world.claim().await.unwrap()["id"],
        fresh.as_str(),
        "fewer attempts go first"
    );
}
