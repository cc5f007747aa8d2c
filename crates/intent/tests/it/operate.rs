//! Admin operations on single intents, and dead letters.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{MAIN, World};

#[tokio::test]
async fn ip_143_an_operator_sees_all_of_an_intent() {
    let world = World::new();
    let body = json!({"goal": "g", "payload": {"a": 1}, "namespace": "n", "priority": 7, "visibility": "public",
        "max_attempts": 4, "backoff_base": 2.5, "target_worker": "w", "required_capability": "c"});
    let id = world.publish(body).await;
    let uri = "/claim?namespace=n&worker_id=w&capabilities=c";
    let job = world.claim_with(uri, MAIN).await.unwrap();
    let seen = world
        .admin_get(&format!("/admin/intents/{id}"))
        .await
        .json();
    let now = seen["created_at"].as_f64().unwrap();
    let expected = json!({"id": id, "namespace": "n", "goal": "g", "payload": {"a": 1}, "status": "claimed",
        "priority": 7, "target_worker": "w", "required_capability": "c", "publisher": "main",
        "claimed_by": "main", "worker": "w", "claim_token": job["claim_token"], "claim_attempts": 1, "max_attempts": 4,
        "backoff_base": 2.5, "visibility": "public", "last_error": null, "created_at": now,
        "expires_at": now + 86_400.0, "run_at": now, "claimed_at": now, "claim_expires_at": now + 60.0,
        "failed_at": null, "completed_at": null, "result_type": "json", "result": null});
    assert_eq!(seen, expected);
    for id in ["00000000000000000000000000000000", "nonsense"] {
        let answer = world.admin_get(&format!("/admin/intents/{id}")).await;
        answer.assert_refused(404, "not_found");
    }
}

#[tokio::test]
async fn ip_144_cancel_forces_any_intent_dead_and_archives_it() {
    let world = World::new();
    let dead = world.dead_letter("g", "x").await;
    let fulfilled = world.fulfilled("g", json!(1)).await;
    let (claimed, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let open = world.publish(json!({"goal": "g", "payload": 1})).await;
    let cancelled = "Cancelled by admin";
    for (id, cause) in [
        (&open, cancelled),
        (&claimed, cancelled),
        (&fulfilled, cancelled),
        (&dead, "x"),
    ] {
        let answer = world
            .admin_post(
                &format!("/admin/intents/{id}/cancel"),
                &json!({"force": true}),
            )
            .await;
        answer.assert_ok(&json!({"ok": true, "id": id, "status": "dead"}));
        let seen = world.status(id).await;
        assert_eq!(
            (&seen["status"], &seen["last_error"]),
            (&json!("dead"), &json!(cause))
        );
        let letter = world.admin_get(&format!("/admin/dead/{id}")).await.json();
        assert_eq!(letter["reason"], cause);
    }
    assert!(world.claim().await.is_none());
    let late = world
        .main_post(
            &format!("/fulfill/{claimed}"),
            &json!({"claim_token": token}),
        )
        .await;
    late.assert_refused(404, "not_found");
    let unknown = world
        .admin_post(
            "/admin/intents/00000000000000000000000000000000/cancel",
            &json!({}),
        )
        .await;
    unknown.assert_refused(404, "not_found");
}

#[tokio::test]
async fn ip_145_retry_gives_any_intent_a_fresh_start() {
    let world = World::new();
    let dead = world.dead_letter("g", "x").await;
    let fulfilled = world.fulfilled("g", json!(1)).await;
    let (claimed, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let open = world
        .publish(json!({"goal": "g", "payload": 1, "delay": 3_000}))
        .await;
    world.clock.advance_s(40);
    for id in [&open, &claimed, &fulfilled, &dead] {
        let answer = world
            .admin_post(
                &format!("/admin/intents/{id}/retry"),
                &json!({"force": true}),
            )
            .await;
        answer.assert_ok(&json!({"ok": true, "id": id, "status": "open"}));
        let seen = world
            .admin_get(&format!("/admin/intents/{id}"))
            .await
            .json();
        assert_eq!(
            (&seen["status"], &seen["claim_attempts"]),
            (&json!("open"), &json!(0))
        );
        for name in [
            "claim_token",
            "claimed_by",
            "claimed_at",
            "claim_expires_at",
            "result",
            "last_error",
            "failed_at",
            "completed_at",
        ] {
            assert_eq!(seen[name], Value::Null, "{name}");
        }
        let life_s = seen["expires_at"].as_f64().unwrap() - seen["run_at"].as_f64().unwrap();
        assert!((life_s - 86_400.0).abs() < 1e-3, "a fresh life");
        world
            .admin_get(&format!("/admin/dead/{id}"))
            .await
            .assert_refused(404, "not_found");
    }
    world.admin_get("/admin/dead").await.assert_ok(&json!([]));
    let late = world
        .main_post(
            &format!("/fulfill/{claimed}"),
            &json!({"claim_token": token}),
        )
        .await;
    late.assert_refused(404, "not_found");
    let jobs = world.claim_with("/claim?max=100", MAIN).await.unwrap();
    assert_eq!(
        jobs["intents"].as_array().unwrap().len(),
        4,
        "all are claimable at once"
    );
    let unknown = world
        .admin_post("/admin/intents/nonsense/retry", &json!({}))
        .await;
    unknown.assert_refused(404, "not_found");
}

#[tokio::test]
async fn a_fulfilled_intent_is_cancelled_or_retried_only_by_force() {
    let world = World::new();
    let id = world.fulfilled("g", json!("r")).await;
    let receipt = async || {
        let uri = format!("/intents/{id}/receipt");
        world.main_get(&uri).await.text()
    };
    let before = receipt().await;
    for step in ["cancel", "retry"] {
        let uri = format!("/admin/intents/{id}/{step}");
        for body in [json!({}), json!({"force": false}), json!({"force": null})] {
            let answer = world.admin_post(&uri, &body).await;
            answer.assert_refused(409, "invalid_state");
        }
        let answer = world.admin_post(&uri, &json!({"force": "yes"})).await;
        answer.assert_refused(400, "invalid_request");
    }
    let seen = world.status(&id).await;
    assert_eq!(seen["status"], "fulfilled");
    assert_eq!(receipt().await, before);
    let uri = format!("/admin/intents/{id}/cancel");
    let forced = world.admin_post(&uri, &json!({"force": true})).await;
    forced.assert_ok(&json!({"ok": true, "id": id, "status": "dead"}));
}

#[tokio::test]
async fn an_intent_that_is_dead_keeps_its_cause_and_its_time_when_it_is_cancelled() {
    let world = World::new();
    let id = world.dead_letter("g", "no paper").await;
    let uri = format!("/admin/intents/{id}");
    let before = world.admin_get(&uri).await.json();
    world.clock.advance_s(40);
    let cancel = format!("/admin/intents/{id}/cancel");
    let answer = world.admin_post(&cancel, &json!({})).await;
    answer.assert_ok(&json!({"ok": true, "id": id, "status": "dead"}));
    let after = world.admin_get(&uri).await.json();
    assert_eq!(after, before);
    assert_eq!(after["last_error"], "no paper");
    let uri = format!("/intents/{id}/timeline");
    let history = world.main_get(&uri).await.json();
    let last = history["facts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["verb"], &last["cause"]),
        (&json!("cancelled"), &json!("exhausted"))
    );
}

#[tokio::test]
async fn ip_145_an_intent_retried_after_its_life_is_claimable_again() {
    let world = World::new();
    let id = world.dead_letter("g", "x").await;
    world.clock.advance_s(2 * 86_400);
    world
        .admin_post(&format!("/admin/intents/{id}/retry"), &json!({}))
        .await;
    assert_eq!(world.claim().await.unwrap()["id"], id.as_str());
}

#[tokio::test]
async fn ip_146_the_dead_list_is_the_100_latest_newest_first() {
    let world = World::new();
    for number in 0..103 {
        world.dead_letter(&format!("g{number}"), "x").await;
        world.clock.advance_us(1_000);
    }
    let list = world.admin_get("/admin/dead").await.json();
    let goals: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| text(&letter["goal"]))
        .collect();
    let latest: Vec<_> = (3..103).rev().map(|number| format!("g{number}")).collect();
    assert_eq!(goals, latest);
}

#[tokio::test]
async fn ip_147_a_dead_letter_tells_where_it_came_from_with_its_first_payload() {
    let world = World::new();
    let id = world.dead_letter("g", "no paper").await;
    let mut expected = json!({"intent_id": id, "namespace": "default", "goal": "g", "attempts": 1, "reason": "no paper"});
    let list = world.admin_get("/admin/dead").await.json();
    expected["created_at"] = list[0]["created_at"].clone();
    assert!(expected["created_at"].is_number());
    assert_eq!(list, json!([expected]));
    expected["payload"] = json!({"goal": "g"});
    expected["publisher"] = json!("main");
    expected["visibility"] = json!("private");
    world
        .admin_get(&format!("/admin/dead/{id}"))
        .await
        .assert_ok(&expected);
    let open = world.publish(json!({"goal": "g", "payload": 1})).await;
    world
        .admin_get(&format!("/admin/dead/{open}"))
        .await
        .assert_refused(404, "not_found");
}
