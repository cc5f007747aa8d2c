//! The limit of a sender, and of the address that sends what no sender can be charged for.

use consign_web::listener_policy::ListenerPolicy;
use serde_json::json;

use crate::relay::refused;
use crate::world::{Identity, World};

#[tokio::test]
async fn be_092_a_sender_has_its_rate_and_forged_frames_do_not_count() {
    let world = World::with(|settings| settings.rate_per_minute = 2).await;
    let (alice, bob) = world.alice_and_bob().await;
    for number in 0..5 {
        let mut forged = alice.message(&world, &bob, &format!("forged-{number}"));
        forged["signature"] = json!("AAAA");
        refused(
            &world.post("/intents/send", &forged).await,
            "Signature verification failed",
        );
    }
    for number in 0..3 {
        let frame = alice.message(&world, &bob, &format!("nonce-{number}"));
        let answer = world.post("/intents/send", &frame).await;
        let expected = if number < 2 {
            (503, "OFFLINE")
        } else {
            (429, "RATE_LIMITED")
        };
        assert_eq!(answer.error(), (expected.0, expected.1.to_owned()));
    }
}

#[tokio::test]
async fn frames_that_nobody_proved_to_have_sent_count_for_their_address() {
    let world = World::with(|settings| settings.rate_per_minute = 1).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut forged = alice.message(&world, &bob, "forged");
    forged["signature"] = json!("AAAA");
    let stranger = Identity::new("eve@acme.beam.directory", 7);
    let unknown = stranger.message(&world, &bob, "unknown");
    let invalid = (400, "INVALID_INTENT".to_owned());
    let limited = (429, "RATE_LIMITED".to_owned());
    // Ten times the rate of a sender.
    for _ in 0..5 {
        for frame in [&forged, &unknown] {
            assert_eq!(world.post("/intents/send", frame).await.error(), invalid);
        }
    }
    for frame in [&forged, &unknown] {
        assert_eq!(world.post("/intents/send", frame).await.error(), limited);
    }
    // The sender itself is not limited by them.
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
}

#[tokio::test]
async fn frames_count_for_the_network_of_an_ipv6_address() {
    let policy = ListenerPolicy {
        trust_proxy: true,
        ..ListenerPolicy::default()
    };
    let world = World::with_policy(policy, |settings| settings.rate_per_minute = 1).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut forged = alice.message(&world, &bob, "forged");
    forged["signature"] = json!("AAAA");
    let status_from = async |address: String| {
        let headers = [("x-forwarded-for", address.as_str())];
        let body = Some(forged.to_string());
        let answer = world.request("POST", "/intents/send", &headers, body).await;
        answer.status
    };
    for host in 1..=10 {
        assert_eq!(status_from(format!("2001:db8:1:2::{host}")).await, 400);
    }
    assert_eq!(status_from("2001:db8:1:2:ffff::1".to_owned()).await, 429);
    assert_eq!(status_from("2001:db8:1:3::1".to_owned()).await, 400);
}

#[tokio::test]
async fn frames_that_were_recorded_do_not_use_up_the_rate_of_their_sender() {
    let world = World::with(|settings| settings.rate_per_minute = 2).await;
    let (alice, bob) = world.alice_and_bob().await;
    let offline = (503, "OFFLINE".to_owned());
    let recorded = alice.message(&world, &bob, "recorded");
    assert_eq!(
        world.post("/intents/send", &recorded).await.error(),
        offline
    );
    let payload = json!({"message": "hello"});
    let at = "2020-01-01T00:00:00.000Z";
    let old = alice.frame_at(at, &bob.beam_id, "conversation.message", &payload, "old");
    // Whoever recorded them may send them again and again.
    for _ in 0..5 {
        assert_eq!(
            world.post("/intents/send", &recorded).await.error(),
            offline
        );
        let refusal = "Timestamp outside allowed replay window (5 minutes)";
        refused(&world.post("/intents/send", &old).await, refusal);
    }
    // The second of two intents in this minute.
    let fresh = alice.message(&world, &bob, "fresh");
    assert_eq!(world.post("/intents/send", &fresh).await.error(), offline);
    let third = alice.message(&world, &bob, "third");
    let limited = (429, "RATE_LIMITED".to_owned());
    assert_eq!(world.post("/intents/send", &third).await.error(), limited);
    // The address has a limit of its own for them, so a flood is not free.
    let mut codes = Vec::new();
    for _ in 0..20 {
        codes.push(world.post("/intents/send", &recorded).await.error());
    }
    assert!(codes[..10].iter().all(|code| *code == offline), "{codes:?}");
    assert!(codes[10..].iter().all(|code| *code == limited), "{codes:?}");
}
