//! The delay before a failed intent is retried.

use serde_json::json;

use crate::steps::text;
use crate::world::World;

impl World {
    fn now_s(&self) -> f64 {
        self.engine.now().seconds()
    }

    /// Claims and fails once. Returns the seconds until the intent is due again.
    async fn pause_after_failure(&self, id: &str) -> f64 {
        let job = self.claim().await.expect("claimable");
        assert_eq!(job["id"], id);
        assert_eq!(
            self.act("fail", id, &text(&job["claim_token"]))
                .await
                .status,
            200
        );
        self.pause(id).await
    }

    async fn pause(&self, id: &str) -> f64 {
        self.status(id).await["run_at"].as_f64().unwrap() - self.now_s()
    }

    /// Advances the clock by exactly the remaining delay.
    pub(crate) async fn skip_pause(&self, id: &str) {
        self.clock.advance_us(micros(self.pause(id).await));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "minutes, not millennia")]
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// At most two seconds more than the delay without jitter. Floats on the wire lose up to a microsecond.
fn within_jitter(pause: f64, bare: f64) -> bool {
    pause > bare - 1e-5 && pause < bare + 2.0
}

#[tokio::test]
async fn ip_022_ip_014_each_failure_doubles_the_pause_and_adds_less_than_two_seconds() {
    for base in [1.0, 2.5, 30.0] {
        let world = World::new();
        let body = json!({"goal": "g", "payload": 1, "backoff_base": base, "max_attempts": 6});
        let id = world.publish(body).await;
        for attempts in 1..=5 {
            let pause = world.pause_after_failure(&id).await;
            let bare = base * 2_f64.powi(attempts);
            assert!(
                within_jitter(pause, bare),
                "{pause} after attempt {attempts} with base {base}"
            );
            world.clock.advance_us(micros(bare) - 1);
            assert!(world.claim().await.is_none(), "too early");
            world.skip_pause(&id).await;
        }
        assert_eq!(world.claim().await.unwrap()["claim_attempts"], 6);
    }
}

#[tokio::test]
async fn ip_023_the_jitter_differs_from_failure_to_failure_and_spans_two_seconds() {
    let world = World::new();
    let mut jitters = Vec::new();
    for _ in 0..64 {
        let id = world
            .publish(json!({"goal": "g", "payload": 1, "backoff_base": 100.0}))
            .await;
        let jitter = world.pause_after_failure(&id).await - 200.0;
        assert!((-1e-5..2.0).contains(&jitter), "{jitter}");
        jitters.push(jitter);
    }
    jitters.sort_by(f64::total_cmp);
    let distinct = jitters
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 1e-6)
        .count();
    assert!(distinct > 48, "{distinct} different ones of 64");
    assert!(
        jitters[0] < 0.5 && jitters[63] > 1.5,
        "{} to {}",
        jitters[0],
        jitters[63]
    );
}

#[tokio::test]
async fn ip_024_cleanup_requeues_an_expired_lease_with_the_pause_of_a_failure() {
    let world = World::new();
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "backoff_base": 7.0}))
        .await;
    for attempts in 1..=2 {
        assert_eq!(world.claim().await.unwrap()["claim_attempts"], attempts);
        world.clock.advance_s(60);
        let report = world.admin_post("/admin/cleanup", &json!({})).await.json();
        assert_eq!(report["expired_claims_requeued"], 1);
        let pause = world.pause(&id).await;
        assert!(
            within_jitter(pause, 7.0 * 2_f64.powi(attempts)),
            "{pause} after {attempts}"
        );
        let status = world.status(&id).await;
        assert_eq!(status["status"], "open");
        assert_eq!(status["last_error"], "Lease expired. Backing off.");
        assert!(world.claim().await.is_none(), "it backs off");
        world.skip_pause(&id).await;
    }
    assert_eq!(world.claim().await.unwrap()["claim_attempts"], 3);
}

#[tokio::test]
async fn ip_025_ip_027_ip_028_without_limits_given_three_attempts_are_made_five_seconds_doubling() {
    for given in [
        json!({}),
        json!({"max_attempts": null, "backoff_base": null}),
    ] {
        let world = World::new();
        let mut body = json!({"goal": "g", "payload": 1});
        body.as_object_mut()
            .unwrap()
            .extend(given.as_object().unwrap().clone());
        let id = world.publish(body).await;
        let detail = world.detail(&id).await;
        assert_eq!(detail["max_attempts"], 3);
        assert_eq!(detail["backoff_base"], 5.0);
        for bare in [10.0, 20.0] {
            let pause = world.pause_after_failure(&id).await;
            assert!(within_jitter(pause, bare), "{pause} instead of {bare}");
            assert_eq!(world.word(&id).await, "open");
            world.skip_pause(&id).await;
        }
        world.pause_after_failure(&id).await;
        assert_eq!(world.word(&id).await, "dead");
    }
}
