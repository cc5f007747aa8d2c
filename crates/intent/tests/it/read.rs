//! Read access to an intent: result, status, list, timeline.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Call, MAIN, World};

const FIELDS: [&str; 11] = [
    "id",
    "namespace",
    "goal",
    "status",
    "priority",
    "visibility",
    "claim_attempts",
    "run_at",
    "claim_expires_at",
    "target_worker",
    "required_capability",
];

fn assert_keys(body: &Value, more: &[&str]) {
    let found: HashSet<&str> = body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(found, FIELDS.iter().chain(more).copied().collect());
}

/// Claims a public intent of `publisher` as `worker`, which needs no grant for it.
async fn public_lease(world: &World, publisher: &str, worker: &str) -> (String, String) {
    let body = json!({"goal": "g", "payload": 1, "visibility": "public"});
    let published = world
        .send(Call::post("/intent").key(publisher).json(&body))
        .await;
    let id = text(&published.json()["id"]);
    let job = world.claim_with("/claim", worker).await.unwrap();
    assert_eq!(job["id"], id.as_str());
    (id, text(&job["claim_token"]))
}

#[tokio::test]
async fn ip_124_ip_127_publisher_claimer_and_main_key_may_read_and_others_may_not() {
    let world = World::new();
    let publisher = world.tester("publisher").await;
    let worker = world.tester("worker").await;
    let stranger = world.tester("stranger").await;
    let (id, token) = public_lease(&world, &publisher, &worker).await;
    let reads =
        ["/result/ID", "/status/ID", "/intents/ID/timeline"].map(|path| path.replace("ID", &id));
    for uri in &reads {
        for key in [&publisher, &worker, MAIN] {
            assert_eq!(
                world.send(Call::get(uri).key(key)).await.status,
                200,
                "{uri}"
            );
        }
        world
            .send(Call::get(uri).key(&stranger))
            .await
            .assert_refused(403, "forbidden");
    }
    // After the failure the worker is no longer the claimer.
    let body = json!({"claim_token": token});
    world
        .send(Call::post(&format!("/fail/{id}")).key(&worker).json(&body))
        .await;
    world
        .send(Call::get(&reads[0]).key(&worker))
        .await
        .assert_refused(403, "forbidden");
}

#[tokio::test]
async fn ip_124_the_worker_may_still_read_what_it_finished() {
    let world = World::new();
    let (publisher, worker) = (world.tester("p").await, world.tester("w").await);
    let (id, token) = public_lease(&world, &publisher, &worker).await;
    let body = json!({"claim_token": token, "result": 5});
    world
        .send(
            Call::post(&format!("/fulfill/{id}"))
                .key(&worker)
                .json(&body),
        )
        .await;
    let answer = world
        .send(Call::get(&format!("/result/{id}")).key(&worker))
        .await;
    assert_eq!(answer.json()["result"], 5);
}

#[tokio::test]
async fn ip_124_ip_127_an_id_that_is_not_there_is_404_for_everybody() {
    let world = World::new();
    let stranger = world.tester("stranger").await;
    for id in [
        "00000000000000000000000000000000",
        "nonsense",
        "ABCDEF00000000000000000000000000",
    ] {
        for path in ["result", "status"] {
            for key in [MAIN, &stranger] {
                let answer = world
                    .send(Call::get(&format!("/{path}/{id}")).key(key))
                    .await;
                answer.assert_refused(404, "not_found");
            }
        }
    }
}

#[tokio::test]
async fn ip_125_a_result_has_fourteen_fields_with_their_types_in_every_state() {
    let world = World::new();
    let open = world.publish(json!({"goal": "g", "payload": 1, "delay": 1, "target_worker": "w", "required_capability": "c"})).await;
    let (claimed, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let fulfilled = world.fulfilled("g", json!({"a": 1})).await;
    for (id, status) in [
        (&open, "open"),
        (&claimed, "claimed"),
        (&fulfilled, "fulfilled"),
    ] {
        let body = world.main_get(&format!("/result/{id}")).await.json();
        assert_keys(&body, &["result", "result_type", "completed_at"]);
        assert_eq!(body["status"], status);
        for name in [
            "id",
            "namespace",
            "goal",
            "status",
            "visibility",
            "result_type",
        ] {
            assert!(body[name].is_string(), "{name} of {body}");
        }
        for name in ["priority", "claim_attempts"] {
            assert!(body[name].is_u64(), "{name} of {body}");
        }
        assert!(body["run_at"].is_number());
        assert_eq!(body["completed_at"].is_number(), status == "fulfilled");
        assert_eq!(body["claim_expires_at"].is_number(), status == "claimed");
        assert_eq!(body["target_worker"].is_string(), status == "open");
        assert_eq!(body["required_capability"].is_string(), status == "open");
        assert_eq!(body["result"].is_null(), status != "fulfilled");
    }
}

#[tokio::test]
async fn ip_126_a_result_tells_the_error_when_there_is_one() {
    let world = World::new();
    let id = world.dead_letter("g", "no paper").await;
    let body = world.main_get(&format!("/result/{id}")).await.json();
    assert_keys(&body, &["result", "result_type", "completed_at", "error"]);
    assert_eq!(
        (&body["error"], &body["status"]),
        (&json!("no paper"), &json!("dead"))
    );
}

#[tokio::test]
async fn ip_127_a_status_never_carries_the_result() {
    let world = World::new();
    let id = world.fulfilled("g", json!("the secret result")).await;
    let answer = world.main_get(&format!("/status/{id}")).await;
    assert_keys(&answer.json(), &["completed_at", "last_error"]);
    assert!(!answer.text().contains("secret"));
}

async fn walk(world: &World, query: &str, key: &str) -> Vec<String> {
    let mut goals = Vec::new();
    let mut cursor = String::new();
    for _ in 0..50 {
        let answer = world
            .send(Call::get(&format!("/intents?{query}{cursor}")).key(key))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body = answer.json();
        goals.extend(
            body["intents"]
                .as_array()
                .unwrap()
                .iter()
                .map(|intent| text(&intent["goal"])),
        );
        match body["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return goals,
        }
    }
    panic!("the list never ends");
}

#[tokio::test]
async fn a_list_walks_through_everything_once_newest_first() {
    let world = World::new();
    for number in 0..23 {
        world
            .publish(json!({"goal": format!("g{number}"), "payload": 1}))
            .await;
    }
    let newest_first: Vec<_> = (0..23).rev().map(|number| format!("g{number}")).collect();
    for limit in [1, 7, 23, 100] {
        assert_eq!(
            walk(&world, &format!("limit={limit}"), MAIN).await,
            newest_first,
            "{limit}"
        );
    }
    assert_eq!(walk(&world, "", MAIN).await, newest_first);
}

#[tokio::test]
async fn a_list_shows_only_the_callers_own_intents_even_to_the_main_key() {
    let world = World::new();
    let anna = world.tester("anna").await;
    let body = json!({"goal": "hers", "payload": 1, "visibility": "public"});
    world
        .send(Call::post("/intent").key(&anna).json(&body))
        .await;
    world
        .publish(json!({"goal": "mine", "payload": 1, "visibility": "public"}))
        .await;
    assert_eq!(walk(&world, "", &anna).await, ["hers"]);
    assert_eq!(walk(&world, "", MAIN).await, ["mine"]);
}

#[tokio::test]
async fn a_list_is_filtered_by_status_namespace_and_goal() {
    let world = World::new();
    world.dead_letter("broken", "x").await;
    world.fulfilled("finished", json!(1)).await;
    world.leased(json!({"goal": "running", "payload": 1})).await;
    world
        .publish(json!({"goal": "waiting", "payload": 1}))
        .await;
    world
        .publish(json!({"goal": "waiting", "payload": 1, "namespace": "other"}))
        .await;
    for (query, goals) in [
        ("status=open", vec!["waiting", "waiting"]),
        ("status=claimed", vec!["running"]),
        ("status=fulfilled", vec!["finished"]),
        ("status=dead", vec!["broken"]),
        ("namespace=other", vec!["waiting"]),
        ("goal=waiting&namespace=default", vec!["waiting"]),
        ("goal=finished&status=open", vec![]),
    ] {
        assert_eq!(walk(&world, query, MAIN).await, goals, "{query}");
        assert_eq!(
            walk(&world, &format!("{query}&limit=1"), MAIN).await,
            goals,
            "{query}"
        );
    }
    for (query, code) in [
        ("status=lost", "invalid_status"),
        ("limit=0", "invalid_limit"),
        ("limit=101", "invalid_limit"),
        ("cursor=abc", "invalid_cursor"),
        ("namespace=a%20b", "invalid_namespace"),
    ] {
        world
            .main_get(&format!("/intents?{query}"))
            .await
            .assert_refused(400, code);
    }
}

#[tokio::test]
async fn a_timeline_tells_all_that_happened_in_order() {
    let world = World::new();
    let (id, token) = world
        .leased(json!({"goal": "g", "payload": 1, "backoff_base": 1}))
        .await;
    world
        .main_post(
            &format!("/extend_claim/{id}"),
            &json!({"claim_token": token}),
        )
        .await;
    world
        .main_post(
            &format!("/fail/{id}"),
            &json!({"claim_token": token, "error": "once"}),
        )
        .await;
    world.clock.advance_s(10);
    world.claim().await.unwrap();
    world.clock.advance_s(61);
    let job = world.claim().await.unwrap();
    world
        .main_post(
            &format!("/fulfill/{id}"),
            &json!({"claim_token": job["claim_token"]}),
        )
        .await;

    let body = world
        .main_get(&format!("/intents/{id}/timeline"))
        .await
        .json();
    assert_eq!(body["id"], id.as_str());
    let facts = body["facts"].as_array().unwrap();
    let verbs: Vec<_> = facts
        .iter()
        .map(|fact| fact["verb"].as_str().unwrap())
        .collect();
    assert_eq!(
        verbs,
        [
            "admitted",
            "claimed",
            "extended",
            "failed",
            "claimed",
            "expired",
            "claimed",
            "completed"
        ]
    );
    assert!(facts.is_sorted_by(|a, b| a["seq"].as_u64() < b["seq"].as_u64()));
    assert_eq!(facts[0]["from"], Value::Null);
    let failed = &facts[3];
    assert_eq!(
        (&failed["from"], &failed["to"], &failed["detail"]),
        (&json!("claimed"), &json!("open"), &json!("once"))
    );
    assert_eq!(facts[7]["to"], "fulfilled");
    assert_eq!(facts[7]["attempt"], 3);
    assert!(!body.to_string().contains(&token), "no token is told");
}
