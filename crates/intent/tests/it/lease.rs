//! `POST /extend_claim`: the extension of a lease.

use serde_json::{Value, json};

use crate::world::{Call, World};

const NOBODY: &str = "00000000000000000000000000000000";

#[tokio::test]
async fn ip_106_an_extended_lease_ends_that_many_seconds_from_now() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.clock.advance_s(50);
    let body = json!({"claim_token": token, "seconds": 120});
    let answer = world.main_post(&format!("/extend_claim/{id}"), &body).await;
    answer.assert_ok(&json!({"ok": true, "id": id, "extended_by": 120}));

    let until = world.status(&id).await["claim_expires_at"]
        .as_f64()
        .unwrap();
    assert!(
        (until - seconds_from_now(&world, 120)).abs() < 1e-3,
        "{until}"
    );
    world.clock.advance_s(119);
    assert!(world.claim().await.is_none());
    world.clock.advance_s(1);
    assert!(world.claim().await.is_some());
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit 53 bits")]
fn seconds_from_now(world: &World, seconds: i64) -> f64 {
    (world.clock.unix_s() + seconds) as f64
}

#[tokio::test]
async fn ip_106_an_extension_may_also_shorten_a_lease() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let body = json!({"claim_token": token, "seconds": 10});
    world.main_post(&format!("/extend_claim/{id}"), &body).await;
    world.clock.advance_s(10);
    assert_eq!(world.claim().await.unwrap()["claim_attempts"], 2);
}

#[tokio::test]
async fn ip_107_seconds_are_drawn_into_10_to_3600_and_the_answer_tells_the_real_number() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let extend = async |seconds: Value| {
        let body = json!({"claim_token": token, "seconds": seconds});
        world.main_post(&format!("/extend_claim/{id}"), &body).await
    };
    for (asked, given) in [
        (json!(9), 10),
        (json!(10), 10),
        (json!(-5), 10),
        (json!(3_600), 3_600),
        (json!(3_601), 3_600),
        (json!(1e300), 3_600),
        (json!(90.7), 90),
        (Value::Null, 60),
    ] {
        let answer = extend(asked.clone()).await;
        assert_eq!(answer.json()["extended_by"], given, "{asked}");
        let until = world.status(&id).await["claim_expires_at"]
            .as_f64()
            .unwrap();
        assert!(
            (until - seconds_from_now(&world, given)).abs() < 1e-3,
            "{asked}"
        );
    }
    extend(json!("soon"))
        .await
        .assert_refused(400, "invalid_seconds");
    extend(json!([60]))
        .await
        .assert_refused(400, "invalid_seconds");
}

#[tokio::test]
async fn ip_108_an_extension_without_a_token_is_refused_before_the_intent_is_looked_for() {
    let world = World::new();
    let (id, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    for body in [
        json!({}),
        json!({"claim_token": ""}),
        json!({"claim_token": null}),
        json!({"seconds": 60}),
    ] {
        for id in [id.as_str(), NOBODY] {
            let answer = world.main_post(&format!("/extend_claim/{id}"), &body).await;
            answer.assert_refused(400, "invalid_request");
            assert_eq!(answer.json()["error"]["message"], "Missing claim_token.");
        }
    }
}

#[tokio::test]
async fn ip_109_only_the_holder_with_its_token_may_extend() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let stranger = world.tester("stranger").await;
    let foreign_owner = Call::post(&format!("/extend_claim/{id}"))
        .key(&stranger)
        .json(&json!({"claim_token": token}));
    world
        .send(foreign_owner)
        .await
        .assert_refused(404, "not_found");
    for (id, token) in [
        (id.as_str(), NOBODY),
        (id.as_str(), "not a token"),
        (id.as_str(), &token.to_uppercase()),
        (NOBODY, &token),
        ("not-an-id", &token),
    ] {
        let body = json!({"claim_token": token, "seconds": 60});
        let answer = world.main_post(&format!("/extend_claim/{id}"), &body).await;
        answer.assert_refused(404, "not_found");
        let message = "Intent not found, not owned by you, or invalid claim_token.";
        assert_eq!(answer.json()["error"]["message"], message);
    }
}

#[tokio::test]
async fn ip_110_a_lease_that_ran_out_cannot_be_extended_even_if_nobody_took_it() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.clock.advance_s(60);
    let body = json!({"claim_token": token});
    let answer = world.main_post(&format!("/extend_claim/{id}"), &body).await;
    answer.assert_refused(404, "not_found");
    assert!(world.claim().await.is_some());
}

#[tokio::test]
async fn ip_110_a_settled_intent_has_no_lease_to_extend() {
    let world = World::new();
    for verb in ["fulfill", "fail"] {
        let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
        let body = json!({"claim_token": token});
        assert_eq!(
            world
                .main_post(&format!("/{verb}/{id}"), &body)
                .await
                .status,
            200
        );
        let answer = world.main_post(&format!("/extend_claim/{id}"), &body).await;
        answer.assert_refused(404, "not_found");
    }
}
