//! Routing of intents to workers, and their order.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Answer, Call, MAIN, World};

pub(crate) async fn publish_as(world: &World, key: &str, body: Value) -> String {
    let answer = world.send(Call::post("/intent").key(key).json(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    text(&answer.json()["id"])
}

#[tokio::test]
async fn ip_074_ip_075_intents_stay_in_their_namespace_even_public_ones() {
    let world = World::new();
    let stranger = world.tester("stranger").await;
    for visibility in ["private", "public"] {
        let body = json!({"goal": "g", "payload": 1, "visibility": visibility});
        let bare = world.publish(body.clone()).await;
        let mut named = body;
        named["namespace"] = json!("other");
        let other = world.publish(named).await;
        for uri in [
            "/claim?namespace=Other",
            "/claim?namespace=othe",
            "/claim?namespace=other2",
            "/claim?namespace=Default",
        ] {
            for key in [MAIN, &stranger] {
                assert!(world.claim_with(uri, key).await.is_none(), "{uri}");
            }
        }
        let job = world.claim_with("/claim", MAIN).await.unwrap();
        assert_eq!(
            (&job["id"], &job["namespace"]),
            (&json!(bare), &json!("default"))
        );
        assert!(
            world
                .claim_with("/claim?namespace=default", MAIN)
                .await
                .is_none()
        );
        let job = world
            .claim_with("/claim?namespace=other", MAIN)
            .await
            .unwrap();
        assert_eq!(
            (&job["id"], &job["namespace"]),
            (&json!(other), &json!("other"))
        );
    }
    world.publish(json!({"goal": "g", "payload": 1})).await;
    assert!(
        world.claim_with("/claim?namespace=", MAIN).await.is_some(),
        "empty is default"
    );
}

#[tokio::test]
async fn ip_076_ip_077_private_intents_are_for_their_publishers_key_public_ones_for_all() {
    let world = World::new();
    let (one, other) = (world.tester("one").await, world.tester("other").await);
    let keys = [MAIN, &one, &other];
    for publisher in keys {
        for claimer in keys {
            for visibility in [None, Some("private"), Some("public")] {
                let mut body = json!({"goal": "g", "payload": 1});
                if let Some(visibility) = visibility {
                    body["visibility"] = json!(visibility);
                }
                let id = publish_as(&world, publisher, body).await;
                let may = publisher == claimer || visibility == Some("public");
                for uri in ["/claim?goal=g", "/claim"] {
                    let job = world.claim_with(uri, claimer).await;
                    let taken = job.as_ref().map(|job| text(&job["id"]));
                    assert_eq!(taken, may.then(|| id.clone()), "{visibility:?} {uri}");
                    if may {
                        break;
                    }
                }
                world
                    .admin_post("/admin/purge", &json!({"confirm": true}))
                    .await;
            }
        }
    }
}

/// A claim with these worker headers and this query.
async fn offer(world: &World, query: &str, headers: &[(&str, &str)]) -> Answer {
    let call = Call::post(&format!("/claim?{query}")).key(MAIN);
    world
        .send(
            headers
                .iter()
                .fold(call, |call, (name, value)| call.header(name, value)),
        )
        .await
}

#[tokio::test]
async fn ip_079_ip_080_a_targeted_intent_goes_only_to_the_worker_it_names() {
    let longest = "w".repeat(64);
    let longer = "w".repeat(70);
    let cases = [
        ("w1", "", Some("w1"), true),
        ("w1", "worker_id=w1", None, true),
        ("w1", "worker_id=w1", Some(""), true),
        ("w1", "", Some("  w1 "), true),
        ("w1", "worker_id=w2", Some("w1"), true),
        ("w1", "worker_id=w1", Some("w2"), false),
        ("w1", "", None, false),
        ("w1", "", Some(""), false),
        ("w1", "", Some("W1"), false),
        ("w1", "", Some("w11"), false),
        ("w1", "", Some("w"), false),
        ("w1", "", Some("w1,w2"), false),
        ("w1", "capabilities=w1", None, false),
        ("None", "", None, false),
        ("null", "", None, false),
        (&longest, "", Some(&longest), true),
        (&longest, "", Some(&longer), true),
    ];
    for (target, query, header, fits) in cases {
        let world = World::new();
        world
            .publish(json!({"goal": "g", "payload": 1, "target_worker": target}))
            .await;
        let headers: Vec<_> = header.map(|id| ("x-worker-id", id)).into_iter().collect();
        let answer = offer(&world, query, &headers).await;
        assert_eq!(
            answer.status,
            if fits { 200 } else { 204 },
            "{target} {query} {header:?}"
        );
        if fits {
            assert_eq!(answer.json()["target_worker"], target);
        }
    }
    let world = World::new();
    world.publish(json!({"goal": "g", "payload": 1})).await;
    let huge = "x".repeat(100_000);
    assert_eq!(
        offer(&world, "", &[("x-worker-id", &huge)]).await.status,
        200,
        "untargeted suits anybody"
    );
}

#[tokio::test]
async fn ip_081_ip_082_a_capability_matches_one_whole_token_exactly() {
    let cases = [
        ("gpu", "", Some("gpu"), true),
        ("gpu", "", Some("cpu, gpu ,disk"), true),
        ("gpu", "", Some(",,gpu,,"), true),
        ("gpu", "capabilities=cpu,gpu", None, true),
        ("gpu", "capabilities=cpu%2C%20gpu", None, true),
        ("gpu", "capability=gpu", None, true),
        ("gpu", "capabilities=gpu", Some("cpu"), false),
        ("gpu", "", None, false),
        ("gpu", "", Some(""), false),
        ("gpu", "", Some("gpu2"), false),
        ("gpu", "", Some("gp"), false),
        ("gpu", "", Some("GPU"), false),
        ("gpu", "", Some("Gpu,gpU"), false),
        ("gpu", "", Some("gpu;cpu"), false),
        ("gpu", "", Some("gpu cpu"), false),
        ("gpu", "", Some("*"), false),
        ("gpu2", "", Some("gpu"), false),
        ("GPU", "", Some("gpu"), false),
        ("None", "", None, false),
    ];
    for (needed, query, header, fits) in cases {
        let world = World::new();
        world
            .publish(json!({"goal": "g", "payload": 1, "required_capability": needed}))
            .await;
        let headers: Vec<_> = header
            .map(|list| ("x-worker-capabilities", list))
            .into_iter()
            .collect();
        let answer = offer(&world, query, &headers).await;
        assert_eq!(
            answer.status,
            if fits { 200 } else { 204 },
            "{needed} {query} {header:?}"
        );
        if fits {
            assert_eq!(answer.json()["required_capability"], needed);
        }
    }
    let world = World::new();
    world
        .publish(json!({"goal": "g", "payload": 1, "required_capability": "c"}))
        .await;
    let many = format!("{}c", "x,".repeat(200));
    assert_eq!(
        offer(&world, "", &[("x-worker-capabilities", &many)])
            .await
            .status,
        204,
        "cut at 256"
    );
    assert_eq!(
        offer(&world, "", &[("x-worker-capability", "c")])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn ip_080_ip_082_target_and_capability_must_both_fit() {
    let world = World::new();
    let body = json!({"goal": "g", "payload": 1, "target_worker": "w", "required_capability": "c"});
    world.publish(body).await;
    for query in [
        "",
        "worker_id=w",
        "capabilities=c",
        "worker_id=c&capabilities=w",
        "worker_id=w&capabilities=d",
    ] {
        assert_eq!(offer(&world, query, &[]).await.status, 204, "{query}");
    }
    assert_eq!(
        offer(&world, "worker_id=w&capabilities=c", &[])
            .await
            .status,
        200
    );
}
