//! Every transition of the state machine, and the operations that a lease allows.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::{Answer, Call, MAIN, World};

/// The operations of a worker on its lease.
const VERBS: [&str; 3] = ["extend_claim", "fulfill", "fail"];

impl World {
    /// One of [`VERBS`] with this token and nothing else.
    pub(crate) async fn act(&self, verb: &str, id: &str, token: &str) -> Answer {
        let body = json!({"claim_token": token});
        self.main_post(&format!("/{verb}/{id}"), &body).await
    }

    /// The admin view of an intent.
    pub(crate) async fn detail(&self, id: &str) -> Value {
        let answer = self.admin_get(&format!("/admin/intents/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub(crate) async fn word(&self, id: &str) -> String {
        text(&self.status(id).await["status"])
    }
}

pub(crate) fn job(max_attempts: u32) -> Value {
    json!({"goal": "g", "payload": 1, "max_attempts": max_attempts})
}

#[tokio::test]
async fn ip_002_ip_009_ip_016_ip_020_a_vanished_workers_intent_is_offered_again_after_sixty_seconds()
 {
    let world = World::new();
    let id = world.publish(job(3)).await;
    let first = world.claim().await.unwrap();
    assert_eq!(first["claim_timeout"], 60);
    let claimed_at = world.detail(&id).await["claimed_at"].as_f64().unwrap();
    let expires_at = world.status(&id).await["claim_expires_at"]
        .as_f64()
        .unwrap();
    assert!((expires_at - claimed_at - 60.0).abs() < 1e-6);

    world.clock.advance_us(59_999_999);
    assert!(world.claim().await.is_none(), "the lease runs for 60 s");
    assert_eq!(world.word(&id).await, "claimed");

    world.clock.advance_us(1);
    let second = world
        .claim()
        .await
        .expect("claimable the moment the lease ends");
    assert_eq!(second["id"], first["id"]);
    assert_eq!(second["claim_attempts"], 2);
    assert_ne!(second["claim_token"], first["claim_token"]);
}

#[tokio::test]
async fn ip_016_cleanup_makes_an_intent_with_an_expired_lease_open() {
    let world = World::new();
    let (id, _) = world.leased(job(2)).await;
    world.clock.advance_s(60);
    world.admin_post("/admin/cleanup", &json!({})).await;
    let status = world.status(&id).await;
    assert_eq!(status["status"], "open");
    assert_eq!(status["claim_expires_at"], Value::Null);
    assert_eq!(status["claim_attempts"], 1);
}

#[tokio::test]
async fn ip_010_ip_012_ip_013_an_intent_goes_from_open_over_claimed_to_fulfilled() {
    let world = World::new();
    let id = world.publish(job(3)).await;
    assert_eq!(world.word(&id).await, "open");
    let job = world.claim().await.unwrap();
    assert_eq!(world.word(&id).await, "claimed");
    let token = text(&job["claim_token"]);
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));

    let refused = world.act("fulfill", &id, &"0".repeat(32)).await;
    refused.assert_refused(404, "not_found");
    assert_eq!(
        world.word(&id).await,
        "claimed",
        "a wrong token changes nothing"
    );
    world
        .act("fulfill", &id, &token)
        .await
        .assert_ok(&json!({"ok": true, "id": id}));
    assert_eq!(world.word(&id).await, "fulfilled");
    assert!(world.claim().await.is_none());
    for verb in VERBS {
        world
            .act(verb, &id, &token)
            .await
            .assert_refused(404, "not_found");
    }
}

#[tokio::test]
async fn ip_014_ip_015_ip_025_a_failure_reopens_until_the_attempts_are_used_up() {
    let world = World::new();
    let id = world.publish(job(2)).await;
    let first = world.claim().await.unwrap();
    world
        .act("fail", &id, &text(&first["claim_token"]))
        .await
        .assert_ok(&json!({"ok": true, "id": id}));
    assert_eq!(world.word(&id).await, "open");
    world.clock.advance_s(60);
    let second = world.claim().await.unwrap();
    assert_eq!(second["claim_attempts"], 2);
    world
        .act("fail", &id, &text(&second["claim_token"]))
        .await
        .assert_ok(&json!({"ok": true, "id": id}));
    assert_eq!(world.word(&id).await, "dead");
    world.clock.advance_s(3_600);
    assert!(world.claim().await.is_none(), "the dead are not offered");
}

#[tokio::test]
async fn ip_017_ip_026_a_lease_that_expires_on_the_last_attempt_leaves_a_dead_intent() {
    // The first request that observes the intent finds it dead: a status, a result, a claim, a cleanup, the list of dead
    // letters, the metrics.
    for look in ["status", "result", "claim", "cleanup", "dead", "metrics"] {
        let world = World::new();
        let (id, token) = world.leased(job(1)).await;
        world.clock.advance_s(60);
        match look {
            "claim" => assert!(world.claim().await.is_none()),
            "cleanup" => {
                let report = world.admin_post("/admin/cleanup", &json!({})).await.json();
                assert_eq!(report["expired_claims_dead"], 1);
                assert_eq!(report["expired_claims_requeued"], 0);
            }
            "dead" => {
                let dead = world.admin_get("/admin/dead").await.json();
                assert_eq!(dead[0]["intent_id"], id.as_str());
            }
            "metrics" => {
                world.admin_get("/metrics").await;
            }
            _ => {
                let seen = world.main_get(&format!("/{look}/{id}")).await.json();
                assert_eq!(seen["status"], "dead", "{look}");
            }
        }
        assert_eq!(world.word(&id).await, "dead", "{look}");
        let letter = world.admin_get(&format!("/admin/dead/{id}")).await.json();
        assert_eq!(letter["reason"], "Max retries exceeded", "{look}");
        world
            .act("fulfill", &id, &token)
            .await
            .assert_refused(404, "not_found");
        let facts = world
            .main_get(&format!("/intents/{id}/timeline"))
            .await
            .json();
        let words: Vec<_> = facts["facts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| text(&fact["to"]))
            .collect();
        assert_eq!(
            words,
            ["open", "claimed", "dead"],
            "{look}: never requeued between"
        );
    }
}

#[tokio::test]
async fn ip_018_ip_019_an_operator_kills_from_any_state_and_revives_the_dead() {
    let world = World::new();
    let open = world
        .publish(json!({"goal": "open", "payload": 1, "namespace": "apart"}))
        .await;
    let (claimed, token) = world.leased(job(3)).await;
    let fulfilled = world.fulfilled("done", json!("r")).await;
    let dead = world.dead_letter("dead", "broken").await;
    let cancelled = "Cancelled by admin";
    for (id, cause) in [
        (&open, cancelled),
        (&claimed, cancelled),
        (&fulfilled, cancelled),
        (&dead, "broken"),
    ] {
        let uri = format!("/admin/intents/{id}/cancel");
        let killed = world.admin_post(&uri, &json!({"force": true})).await;
        killed.assert_ok(&json!({"ok": true, "id": id, "status": "dead"}));
        let status = world.status(id).await;
        assert_eq!(
            (&status["status"], &status["last_error"]),
            (&json!("dead"), &json!(cause))
        );
    }
    world
        .act("fulfill", &claimed, &token)
        .await
        .assert_refused(404, "not_found");
    assert!(world.claim().await.is_none());

    for id in [&open, &claimed, &fulfilled, &dead] {
        let revived = world
            .admin_post(&format!("/admin/intents/{id}/retry"), &json!({}))
            .await;
        revived.assert_ok(&json!({"ok": true, "id": id, "status": "open"}));
        let status = world.status(id).await;
        assert_eq!(
            (&status["status"], &status["claim_attempts"]),
            (&json!("open"), &json!(0))
        );
        let namespace = text(&status["namespace"]);
        let again = world
            .claim_with(&format!("/claim?namespace={namespace}"), MAIN)
            .await
            .unwrap();
        assert_eq!(again["id"], id.as_str());
    }
    let unknown = "0".repeat(32);
    for step in ["cancel", "retry"] {
        let answer = world
            .admin_post(&format!("/admin/intents/{unknown}/{step}"), &json!({}))
            .await;
        answer.assert_refused(404, "not_found");
    }
}

#[tokio::test]
async fn ip_011_open_intents_past_their_life_are_deleted_and_do_not_die() {
    let world = World::new();
    let old = world.publish(job(3)).await;
    world.clock.advance_s(86_399);
    let young = world.publish(job(3)).await;
    world.clock.advance_s(1);
    let report = world.admin_post("/admin/cleanup", &json!({})).await.json();
    assert_eq!(report["expired_open_deleted"], 1);
    world
        .main_get(&format!("/status/{old}"))
        .await
        .assert_refused(404, "not_found");
    assert_eq!(world.word(&young).await, "open");
    assert_eq!(world.admin_get("/admin/dead").await.json(), json!([]));
    assert_eq!(world.claim().await.unwrap()["id"], young.as_str());
}

#[tokio::test]
async fn ip_029_ip_030_ip_031_an_expired_or_replaced_token_is_good_for_nothing() {
    for verb in VERBS {
        let world = World::new();
        let (id, old) = world.leased(job(3)).await;
        world.clock.advance_s(60);
        let expired = world.act(verb, &id, &old).await;
        expired.assert_refused(404, "not_found");
        let new = text(&world.claim().await.unwrap()["claim_token"]);
        world
            .act(verb, &id, &old)
            .await
            .assert_refused(404, "not_found");
        let status = world.status(&id).await;
        assert_eq!(
            (&status["status"], &status["claim_attempts"]),
            (&json!("claimed"), &json!(2)),
            "{verb}"
        );
        let now = f64::from(u32::try_from(world.clock.unix_s()).unwrap());
        assert!(
            (status["claim_expires_at"].as_f64().unwrap() - now - 60.0).abs() < 1e-6,
            "{verb}"
        );
        assert_eq!(
            world.act(verb, &id, &new).await.status,
            200,
            "{verb} with the present token"
        );
    }
}

#[tokio::test]
async fn ip_007_no_worker_touches_the_lease_of_another_even_with_the_same_key() {
    let world = World::new();
    let (one, one_token) = world.leased(job(3)).await;
    let (other, other_token) = world.leased(job(3)).await;
    let stranger = world.tester("stranger").await;
    let guesses = [
        other_token.clone(),
        one_token.to_uppercase(),
        format!("{one_token}0"),
        one_token[..31].to_owned(),
        format!(" {one_token}"),
        "é".repeat(16),
        "0".repeat(32),
    ];
    for verb in VERBS {
        for guess in guesses.iter().filter(|guess| **guess != one_token) {
            world
                .act(verb, &one, guess)
                .await
                .assert_refused(404, "not_found");
        }
        let right = Call::post(&format!("/{verb}/{one}")).key(&stranger);
        let right = world
            .send(right.json(&json!({"claim_token": one_token})))
            .await;
        right.assert_refused(404, "not_found");
    }
    for (id, token) in [(&one, &one_token), (&other, &other_token)] {
        assert_eq!(world.word(id).await, "claimed");
        assert_eq!(world.act("fulfill", id, token).await.status, 200);
    }
}
