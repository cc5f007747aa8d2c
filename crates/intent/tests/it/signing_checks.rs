//! When a signature is required, how long it is valid, and that it is valid only once.

use serde_json::json;

use crate::signing::{Signer, assert_unsigned, publish};
use crate::world::{Call, MAIN, World};

#[tokio::test]
async fn ip_008_ip_051_a_signature_is_checked_wherever_there_is_one() {
    let world = World::new();
    let signed = |nonce: &str| Signer::new(&world, MAIN, nonce).sign(publish(), "/intent");
    let without = |header: &str, nonce: &str| {
        let mut call = signed(nonce);
        call.headers.retain(|(name, _)| name != header);
        call
    };
    for header in ["x-timestamp", "x-nonce"] {
        let missing = world.send(without(header, "a")).await;
        assert_unsigned(&missing, "Missing required signature headers.");
        let empty = world.send(without(header, "b").header(header, "")).await;
        assert_unsigned(&empty, "Missing required signature headers.");
    }
    for timestamp in [
        "soon",
        "1.8e9",
        "1800000000.0",
        "+1800000000",
        "0x6b49d200",
        "--1",
        "-",
        "١٢",
    ] {
        let signer = Signer {
            key: MAIN,
            timestamp: timestamp.to_owned(),
            nonce: "c".to_owned(),
        };
        assert_unsigned(
            &world.send(signer.sign(publish(), "/intent")).await,
            "Invalid timestamp",
        );
    }
    for timestamp in ["0", "-1800000000", &"9".repeat(400)] {
        let signer = Signer {
            key: MAIN,
            timestamp: timestamp.to_owned(),
            nonce: "d".to_owned(),
        };
        assert_unsigned(
            &world.send(signer.sign(publish(), "/intent")).await,
            "Stale timestamp",
        );
    }
    assert!(world.claim().await.is_none(), "nothing was published");
    // Without a signature the other two headers are ignored, and an empty signature counts as none.
    assert_eq!(world.send(without("x-signature", "e")).await.status, 201);
    assert_eq!(
        world
            .send(without("x-signature", "f").header("x-signature", ""))
            .await
            .status,
        201
    );
    assert_eq!(world.send(signed("g")).await.status, 201);
}

#[tokio::test]
async fn ip_052_ip_008_where_signatures_are_required_unsigned_requests_are_refused() {
    let world = World::with(|options| options.require_signatures = true);
    let id = "0".repeat(32);
    for call in [
        publish(),
        Call::post("/claim"),
        Call::get(&format!("/status/{id}")),
        Call::get("/nowhere"),
    ] {
        let answer = world.send(call.clone().key(MAIN)).await;
        assert_unsigned(&answer, "Missing required signature headers.");
        world
            .send(call.key("nobody"))
            .await
            .assert_refused(401, "unauthorized");
    }
    let signed = Signer::new(&world, MAIN, "n1").sign(publish(), "/intent");
    assert_eq!(world.send(signed).await.status, 201);
    // The other routes have their own authentication.
    assert_eq!(world.send(Call::get("/health")).await.status, 200);
    assert_eq!(world.admin_get("/admin/dead").await.status, 200);
    assert_eq!(world.admin_get("/metrics").await.status, 200);
}

#[tokio::test]
async fn ip_053_ip_054_a_timestamp_may_differ_by_300_seconds_and_no_more() {
    let world = World::new();
    for (offset_s, fits) in [
        (-300, true),
        (-299, true),
        (299, true),
        (300, true),
        (-301, false),
        (301, false),
        (86_400, false),
    ] {
        let call = Signer::at(&world, offset_s, &format!("n{offset_s}")).sign(publish(), "/intent");
        let answer = world.send(call).await;
        if fits {
            assert_eq!(answer.status, 201, "{offset_s}");
        } else {
            assert_unsigned(&answer, "Stale timestamp");
        }
    }
    let late = Signer::at(&world, -300, "late").sign(publish(), "/intent");
    world.clock.advance_us(1);
    assert_unsigned(&world.send(late).await, "Stale timestamp");
}

#[tokio::test]
async fn ip_055_ip_056_a_nonce_is_good_once_per_key() {
    let world = World::new();
    let tester = world.tester("t").await;
    let first = Signer::new(&world, MAIN, "n1").sign(publish(), "/intent");
    assert_eq!(world.send(first.clone()).await.status, 201);
    assert_unsigned(&world.send(first).await, "Replay detected");
    let other_request = Signer::new(&world, MAIN, "n1").sign(Call::post("/claim"), "/claim");
    assert_unsigned(&world.send(other_request).await, "Replay detected");
    let other_key = Signer::new(&world, &tester, "n1").sign(publish(), "/intent");
    assert_eq!(world.send(other_key.clone()).await.status, 201);
    assert_unsigned(&world.send(other_key).await, "Replay detected");

    // The nonce is also used up if the request then fails or only reads.
    let broken = Call::post("/intent").raw("{");
    let unknown = Call::get("/status/x");
    for (nonce, call) in [
        ("n2", broken),
        ("n3", unknown),
        ("n4", Call::get("/nowhere")),
    ] {
        let path = call.uri.clone();
        let call = Signer::new(&world, MAIN, nonce).sign(call, &path);
        assert_ne!(world.send(call.clone()).await.status, 403);
        assert_unsigned(&world.send(call).await, "Replay detected");
    }
    let long = Signer::new(&world, MAIN, &"n".repeat(256)).sign(publish(), "/intent");
    world
        .send(long)
        .await
        .assert_refused(403, "invalid_signature");
    let longest = Signer::new(&world, MAIN, &"n".repeat(255)).sign(publish(), "/intent");
    assert_eq!(world.send(longest).await.status, 201);
}

#[tokio::test]
async fn ip_055_no_request_can_be_replayed_while_its_timestamp_holds() {
    // With a timestamp in the future a signature is valid for up to 600 s. Cleanup passes must keep its nonce for that time.
    for offset_s in [-300, 0, 299, 300] {
        let world = World::new();
        let call = Signer::at(&world, offset_s, "n").sign(publish(), "/intent");
        assert_eq!(world.send(call.clone()).await.status, 201);
        world.clock.advance_s(300 + offset_s);
        world.admin_post("/admin/cleanup", &json!({})).await;
        assert_unsigned(&world.send(call.clone()).await, "Replay detected");
        world.clock.advance_us(1);
        assert_unsigned(&world.send(call).await, "Stale timestamp");
    }
}
