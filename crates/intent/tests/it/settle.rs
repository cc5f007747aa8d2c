//! `POST /fulfill` and `POST /fail`.

use serde_json::{Value, json};

use crate::world::{Call, World};

const NOBODY: &str = "00000000000000000000000000000000";

/// The body of `GET /result` after this fulfil body was accepted.
async fn stored(world: &World, mut body: Value) -> Value {
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    body["claim_token"] = json!(token);
    let answer = world.main_post(&format!("/fulfill/{id}"), &body).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    let result = world.main_get(&format!("/result/{id}")).await.json();
    assert_eq!(result["status"], "fulfilled");
    result
}

#[tokio::test]
async fn ip_113_ip_116_a_fulfilled_intent_keeps_its_result_as_json_unless_told_text() {
    let world = World::new();
    for (body, result, kind) in [
        (
            json!({"result": {"a": [1, 2.5, null, "é"]}}),
            json!({"a": [1, 2.5, null, "é"]}),
            "json",
        ),
        (json!({"result": "words"}), json!("words"), "json"),
        (json!({"result": 0}), json!(0), "json"),
        (
            json!({"result": false, "result_type": "json"}),
            json!(false),
            "json",
        ),
        (
            json!({"result": "{\"not\":\"parsed\"}", "result_type": "text"}),
            json!("{\"not\":\"parsed\"}"),
            "text",
        ),
        (
            json!({"result": "", "result_type": "text"}),
            json!(""),
            "text",
        ),
        (
            json!({"result": [1], "result_type": null}),
            json!([1]),
            "json",
        ),
    ] {
        let seen = stored(&world, body.clone()).await;
        assert_eq!(
            (&seen["result"], &seen["result_type"]),
            (&result, &json!(kind)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn ip_113_a_result_comes_back_with_the_numbers_it_was_sent_with() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let body = format!(
        r#"{{"claim_token":"{token}","result":{{"n":1.10e2,"big":123456789012345678901234567890}}}}"#
    );
    let call = Call::post(&format!("/fulfill/{id}"))
        .key(crate::world::MAIN)
        .raw(body);
    assert_eq!(world.send(call).await.status, 200);
    let result = world.main_get(&format!("/result/{id}")).await.text();
    assert!(
        result.contains(r#""result":{"n":1.10e2,"big":123456789012345678901234567890}"#),
        "{result}"
    );
}

#[tokio::test]
async fn ip_117_a_fulfil_without_a_result_stores_none() {
    let world = World::new();
    for body in [
        json!({}),
        json!({"result_type": "json"}),
        json!({"result": null}),
        json!({"result_type": "text"}),
    ] {
        let seen = stored(&world, body.clone()).await;
        assert_eq!(
            (&seen["result"], &seen["result_type"]),
            (&Value::Null, &json!("json")),
            "{body}"
        );
        assert!(seen["completed_at"].is_number());
        assert_eq!(seen["claim_expires_at"], Value::Null);
    }
}

#[tokio::test]
async fn ip_114_ip_121_a_settlement_without_a_token_is_refused_and_changes_nothing() {
    let world = World::new();
    let (id, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    for verb in ["fulfill", "fail"] {
        for body in [
            json!({}),
            json!({"claim_token": ""}),
            json!({"claim_token": null}),
            json!({"result": 1}),
        ] {
            for id in [id.as_str(), NOBODY] {
                let answer = world.main_post(&format!("/{verb}/{id}"), &body).await;
                answer.assert_refused(400, "invalid_request");
                assert_eq!(answer.json()["error"]["message"], "Missing claim_token.");
            }
        }
        // An empty body gets the same response.
        let empty = Call::post(&format!("/{verb}/{id}")).key(crate::world::MAIN);
        world
            .send(empty)
            .await
            .assert_refused(400, "invalid_request");
    }
    assert_eq!(world.status(&id).await["status"], "claimed");
}

#[tokio::test]
async fn ip_115_a_result_of_another_type_or_of_the_wrong_size_is_refused_and_the_lease_stays() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    // One byte beyond the limit of 7168 bytes for a result. The whole body is within the limit for requests.
    let large = "x".repeat(7_169);
    for (mut body, status, code) in [
        (
            json!({"result": 1, "result_type": "xml"}),
            400,
            "invalid_result_type",
        ),
        (
            json!({"result": 1, "result_type": "JSON"}),
            400,
            "invalid_result_type",
        ),
        (
            json!({"result": 1, "result_type": 5}),
            400,
            "invalid_result_type",
        ),
        (json!({"result_type": "xml"}), 400, "invalid_result_type"),
        (
            json!({"result": {"a": 1}, "result_type": "text"}),
            400,
            "invalid_result",
        ),
        (
            json!({"result": 1, "result_type": "text"}),
            400,
            "invalid_result",
        ),
        (
            json!({"result": large, "result_type": "text"}),
            413,
            "result_too_large",
        ),
        (
            json!({"result": "x".repeat(7_167)}),
            413,
            "result_too_large",
        ),
    ] {
        body["claim_token"] = json!(token);
        let answer = world.main_post(&format!("/fulfill/{id}"), &body).await;
        answer.assert_refused(status, code);
    }
    let just_fits = json!({"claim_token": token, "result": "x".repeat(7_166)});
    assert_eq!(
        world
            .main_post(&format!("/fulfill/{id}"), &just_fits)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn ip_118_ip_122_ip_188_only_the_holder_with_its_token_may_settle() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let stranger = world.tester("stranger").await;
    for verb in ["fulfill", "fail"] {
        let foreign_owner = Call::post(&format!("/{verb}/{id}"))
            .key(&stranger)
            .json(&json!({"claim_token": token}));
        world
            .send(foreign_owner)
            .await
            .assert_refused(404, "not_found");
        for (id, token) in [
            (id.as_str(), NOBODY),
            (id.as_str(), "short"),
            (id.as_str(), &token.to_uppercase()),
            (NOBODY, &token),
            ("not-an-id", &token),
        ] {
            let body = json!({"claim_token": token});
            let answer = world.main_post(&format!("/{verb}/{id}"), &body).await;
            answer.assert_refused(404, "not_found");
            let message = "Intent not found, not owned by you, or invalid claim_token.";
            assert_eq!(answer.json()["error"]["message"], message);
        }
    }
    assert_eq!(world.status(&id).await["status"], "claimed");
    let once = json!({"claim_token": token});
    assert_eq!(
        world
            .main_post(&format!("/fulfill/{id}"), &once)
            .await
            .status,
        200
    );
    for verb in ["fulfill", "fail"] {
        let again = world.main_post(&format!("/{verb}/{id}"), &once).await;
        again.assert_refused(404, "not_found");
    }
}

#[tokio::test]
async fn ip_120_a_failure_is_answered_alike_whether_it_waits_or_is_dead() {
    let world = World::new();
    for (attempts_max, status) in [(2, "open"), (1, "dead")] {
        let body = json!({"goal": "g", "payload": 1, "max_attempts": attempts_max});
        let (id, token) = world.leased(body).await;
        let failure = json!({"claim_token": token, "error": "disk full"});
        let answer = world.main_post(&format!("/fail/{id}"), &failure).await;
        answer.assert_ok(&json!({"ok": true, "id": id}));
        let seen = world.status(&id).await;
        assert_eq!(
            (&seen["status"], &seen["last_error"]),
            (&json!(status), &json!("disk full"))
        );
        assert!(world.claim().await.is_none(), "it waits, or it is over");
    }
}

#[tokio::test]
async fn ip_120_a_reason_is_kept_as_text() {
    let world = World::new();
    for (sent, kept) in [
        (json!("  padded  "), "padded".to_owned()),
        (json!("é".repeat(600)), "é".repeat(600)),
        (json!({"code": 5}), r#"{"code":5}"#.to_owned()),
        (json!(7), "7".to_owned()),
        (json!("   "), "unknown".to_owned()),
        (Value::Null, "unknown".to_owned()),
    ] {
        let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
        let body = json!({"claim_token": token, "error": sent});
        assert_eq!(
            world.main_post(&format!("/fail/{id}"), &body).await.status,
            200
        );
        assert_eq!(world.status(&id).await["last_error"], kept.as_str());
    }
}

#[tokio::test]
async fn ip_113_success_after_a_failure_clears_the_old_error() {
    let world = World::new();
    let (id, token) = world
        .leased(json!({"goal": "g", "payload": 1, "backoff_base": 1}))
        .await;
    world
        .main_post(
            &format!("/fail/{id}"),
            &json!({"claim_token": token, "error": "first"}),
        )
        .await;
    world.clock.advance_s(10);
    let job = world.claim().await.unwrap();
    let done = json!({"claim_token": job["claim_token"], "result": 1});
    assert_eq!(
        world
            .main_post(&format!("/fulfill/{id}"), &done)
            .await
            .status,
        200
    );
    let result = world.main_get(&format!("/result/{id}")).await.json();
    assert!(result.get("error").is_none());
    assert_eq!(world.status(&id).await["last_error"], Value::Null);
}
