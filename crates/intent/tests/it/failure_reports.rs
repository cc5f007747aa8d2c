//! What a failure may say beyond the protocol: a long error, and what the worker knows about the next attempt.

use consign_kernel::limits::{ERROR_BYTES_MAX, FAILURE_BODY_BYTES_MAX};
use serde_json::{Value, json};

use crate::steps::text;
use crate::world::World;

const NEW: fn() -> Value = || json!({"goal": "g", "payload": 1});

async fn fail(world: &World, id: &str, token: &str, more: &Value) -> crate::world::Answer {
    let mut body = json!({"claim_token": token, "error": "no paper"});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    world.main_post(&format!("/fail/{id}"), &body).await
}

#[tokio::test]
async fn a_worker_rules_out_another_attempt() {
    let world = World::new();
    let (id, token) = world.leased(NEW()).await;
    let answer = fail(&world, &id, &token, &json!({"retry": false})).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    let detail = world.detail(&id).await;
    assert_eq!(
        (&detail["status"], &detail["claim_attempts"]),
        (&json!("dead"), &json!(1))
    );
    assert_eq!(detail["last_error"], "no paper");
    let letter = world.admin_get(&format!("/admin/dead/{id}")).await.json();
    assert_eq!(letter["reason"], "no paper");
    let facts = world.main_get(&format!("/intents/{id}/timeline")).await;
    let last = facts.json()["facts"].as_array().unwrap().last().cloned();
    let last = last.unwrap();
    assert_eq!(
        (&last["verb"], &last["to"], &last["cause"]),
        (&json!("failed"), &json!("dead"), &json!("rejected"))
    );
}

#[tokio::test]
async fn a_worker_names_the_time_of_the_next_attempt() {
    let world = World::new();
    let (id, token) = world.leased(NEW()).await;
    let before = world.status(&id).await["run_at"].as_f64().unwrap();
    let answer = fail(&world, &id, &token, &json!({"retry_in": 30.5})).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    let seen = world.status(&id).await;
    assert_eq!(
        (&seen["status"], &seen["claim_attempts"]),
        (&json!("open"), &json!(1))
    );
    assert_eq!(seen["run_at"].as_f64(), Some(before + 30.5));
    world.clock.advance_us(30_499_999);
    assert!(world.claim().await.is_none());
    world.clock.advance_us(1);
    let job = world.claim().await.unwrap();
    // The last attempt but one: it can be claimed again at once.
    let token = text(&job["claim_token"]);
    let answer = fail(&world, &id, &token, &json!({"retry_in": 0})).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    let job = world.claim().await.unwrap();
    assert_eq!(job["claim_attempts"], 3);
    // Without attempts left it is dead all the same.
    let token = text(&job["claim_token"]);
    let answer = fail(&world, &id, &token, &json!({"retry_in": 5})).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    assert_eq!(world.status(&id).await["status"], "dead");
}

#[tokio::test]
async fn wrong_wishes_are_refused_and_the_lease_stays() {
    let world = World::new();
    let (id, token) = world.leased(NEW()).await;
    for wrong in [
        json!({"retry": "no"}),
        json!({"retry": 0}),
        json!({"retry_in": -1}),
        json!({"retry_in": "30"}),
        json!({"retry_in": true}),
        json!({"retry": false, "retry_in": 5}),
        json!({"retry": true, "retry_in": 5}),
        json!({"retry_in": 86_400}),
        json!({"retry_in": 1e300}),
    ] {
        let answer = fail(&world, &id, &token, &wrong).await;
        answer.assert_refused(400, "invalid_retry");
        assert_eq!(world.status(&id).await["status"], "claimed", "{wrong}");
    }
    let too_late = fail(&world, &id, &token, &json!({"retry_in": 86_400})).await;
    let message = text(&too_late.json()["error"]["message"]);
    assert!(message.contains("86400 s"), "{message}");
    // Null is the same as nothing, and true is the default.
    for harmless in [
        json!({"retry": null, "retry_in": null}),
        json!({"retry": true, "retry_in": null}),
    ] {
        let (id, token) = world.leased(NEW()).await;
        let answer = fail(&world, &id, &token, &harmless).await;
        answer.assert_ok(&json!({"ok": true, "id": id}));
        let left = world.status(&id).await;
        assert_eq!(left["status"], "open", "{harmless}");
    }
}

#[tokio::test]
async fn items_of_a_batch_take_the_same_wishes() {
    let world = World::new();
    let mut leased = Vec::new();
    for _ in 0..3 {
        leased.push(world.leased(NEW()).await);
    }
    let item = |number: usize, more: Value| {
        let (id, token) = &leased[number];
        let mut item = json!({"id": id, "claim_token": token, "action": "fail", "error": "no"});
        let fields = item.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        item
    };
    let long = "x".repeat(ERROR_BYTES_MAX + 1);
    let body = json!({"items": [
        item(0, json!({"retry": false, "error": long})),
        item(1, json!({"retry_in": 7})),
        item(2, json!({"retry_in": 7, "retry": false})),
    ]});
    let answer = world.main_post("/settle", &body).await.json();
    let items = &answer["items"];
    let [dead, open, held] = [0, 1, 2].map(|number| leased[number].0.clone());
    assert_eq!(
        items[0],
        json!({"id": dead, "ok": true, "error_truncated": true})
    );
    assert_eq!(items[1], json!({"id": open, "ok": true}));
    assert_eq!(items[2]["error"]["code"], "invalid_retry");
    for (id, status) in [(dead, "dead"), (open, "open"), (held, "claimed")] {
        assert_eq!(world.status(&id).await["status"], status);
    }
}

#[tokio::test]
async fn of_a_long_error_the_beginning_and_the_end_are_kept_everywhere_and_the_answer_says_so() {
    let world = World::new();
    let (id, token) = world.leased(NEW()).await;
    let long = format!("Traceback\n{}\nKeyError: 'é'", "  File x\n".repeat(2_000));
    let answer = fail(&world, &id, &token, &json!({"error": long})).await;
    answer.assert_ok(&json!({"ok": true, "id": id, "error_truncated": true}));
    let kept = text(&world.status(&id).await["last_error"]);
    assert!(kept.len() <= ERROR_BYTES_MAX && kept.len() > ERROR_BYTES_MAX - 100);
    assert!(kept.starts_with("Traceback\n  File x"), "{kept}");
    assert!(kept.ends_with("File x\n\nKeyError: 'é'"), "{kept}");
    assert!(kept.contains("bytes are left out"), "{kept}");
    let kept = json!(kept);
    let result = world.main_get(&format!("/result/{id}")).await.json();
    let timeline = world.main_get(&format!("/intents/{id}/timeline")).await;
    let timeline = timeline.json();
    assert_eq!(
        (&result["error"], &timeline["facts"][2]["detail"]),
        (&kept, &kept)
    );
    assert_eq!(world.detail(&id).await["last_error"], kept);
}

#[tokio::test]
async fn an_error_that_fits_is_not_called_truncated_and_one_that_no_server_takes_is_refused() {
    let world = World::new();
    let (id, token) = world.leased(NEW()).await;
    let huge = json!({"error": "x".repeat(FAILURE_BODY_BYTES_MAX)});
    let answer = fail(&world, &id, &token, &huge).await;
    answer.assert_refused(413, "payload_too_large");
    let fits = json!({"error": format!("  {}\n", "x".repeat(ERROR_BYTES_MAX))});
    let answer = fail(&world, &id, &token, &fits).await;
    answer.assert_ok(&json!({"ok": true, "id": id}));
    let seen = world.status(&id).await;
    assert_eq!(seen["last_error"], "x".repeat(ERROR_BYTES_MAX));
}
