//! Intents between the agents of two directories.

use std::time::Duration;

use consign_testkit::proxy::{Carrier, Mode};
use serde_json::json;

use crate::federation_world::{Pair, SECRET_HEADER};
use crate::world::Identity;

#[tokio::test]
async fn be_133_an_intent_is_relayed_and_both_directories_store_their_part() {
    let pair = Pair::new().await;
    let mut socket = pair.far.connect(&pair.bob.beam_id).await;
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let bob = pair.bob.clone();
    let answering = tokio::spawn(async move {
        let got = socket.answer(&bob, &json!({"message": "re: hello"})).await;
        (socket, got)
    });
    let first = pair.near.post("/intents/send", &frame).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(first.json()["payload"]["message"], "re: hello");
    let (_socket, got) = answering.await.unwrap();
    assert_eq!(got, frame);

    let peer = pair.far.url();
    let near = pair.near.timed_trace("nonce-1").await;
    let expected = [
        (
            "received",
            json!({"transport": "http", "sourceDirectory": null, "hopCount": 0}),
        ),
        (
            "validated",
            json!({"transport": "http", "senderSource": "local", "sourceDirectory": null, "hopCount": 0}),
        ),
        (
            "dispatched",
            json!({"deliveryTarget": "local-or-federated", "transport": "http"}),
        ),
        ("dispatched", json!({"deliveryTarget": "federation"})),
        (
            "dispatched",
            json!({"peerUrl": peer, "scope": "peer", "transport": "federation"}),
        ),
        (
            "dispatched",
            json!({"peerUrl": peer, "hopCount": 1, "transport": "federation"}),
        ),
        (
            "delivered",
            json!({"peerUrl": peer, "hopCount": 1, "transport": "federation", "latencyMs": 0}),
        ),
        (
            "acked",
            json!({"peerUrl": peer, "transport": "federation", "latencyMs": 0, "errorCode": null}),
        ),
    ];
    assert_eq!(near, expected);
    let far = pair.far.timed_trace("nonce-1").await;
    let words: Vec<&str> = far.iter().map(|(word, _)| *word).collect();
    assert_eq!(
        words,
        [
            "received",
            "validated",
            "dispatched",
            "dispatched",
            "delivered",
            "acked"
        ]
    );
    let source = pair.near.url();
    assert_eq!(
        far[0].1,
        json!({"transport": "http", "sourceDirectory": source, "hopCount": 1})
    );
    assert_eq!(far[1].1["senderSource"], "federated");

    // A repetition is answered here, and neither directory does anything again.
    let again = pair.near.post("/intents/send", &frame).await;
    assert_eq!((again.status, again.text), (200, first.text));
    assert_eq!(pair.far.timed_trace("nonce-1").await.len(), 6);
}

#[tokio::test]
async fn be_133_a_relayed_frame_keeps_its_unknown_fields() {
    let pair = Pair::new().await;
    let mut socket = pair.far.connect(&pair.bob.beam_id).await;
    let mut frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    frame["traceId"] = json!("t-1");
    let bob = pair.bob.clone();
    let answering = tokio::spawn(async move { socket.answer(&bob, &json!({})).await });
    let answer = pair.far.relayed(&pair.near.url(), "1", &frame).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answering.await.unwrap()["traceId"], "t-1");
}

#[tokio::test]
async fn be_134_a_relay_beyond_three_hops_is_refused() {
    let pair = Pair::new().await;
    let source = pair.near.url();
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let refused = (502, "FEDERATION_RELAY_ERROR".to_owned());
    let answer = pair.far.relayed(&source, "4", &frame).await;
    assert_eq!(answer.error(), refused);
    assert_eq!(answer.json()["error"], "Federation hop limit exceeded (3)");
    for garbage in ["abc", "0", "-1", "1.5", "+1", "99999999999999999999"] {
        let answer = pair.far.relayed(&source, garbage, &frame).await;
        assert_eq!(answer.error(), refused, "{garbage}");
    }
    assert!(pair.far.intent("nonce-1").await.is_none());
    // The third directory cannot hand it to a fourth one.
    let carol = Identity::new("carol@other.beam.directory", 5);
    let frame = pair.alice.message(&pair.near, &carol, "nonce-2");
    let answer = pair.far.relayed(&source, "3", &frame).await;
    assert_eq!(answer.error(), refused);
    assert_eq!(answer.json()["error"], "Federation hop limit exceeded (3)");
    assert_eq!(
        pair.far.timed_trace("nonce-2").await.last().unwrap().0,
        "failed"
    );
}

#[tokio::test]
async fn be_092_be_113_be_135_a_refusal_of_the_peer_is_a_failed_delivery() {
    let pair = Pair::new().await;
    let payload = json!({"message": "hello"});
    let bob = &pair.bob.beam_id;
    let eve = Identity::new("eve@acme.beam.directory", 6);
    pair.near.add_agent(&eve).await;
    let frame = eve.frame(&pair.near, bob, "conversation.message", &payload, "nonce-1");
    let direct = pair.far.relayed(&pair.near.url(), "1", &frame).await;
    assert_eq!(direct.error(), (502, "FEDERATION_RELAY_ERROR".to_owned()));
    let text = format!(
        "ACL denied intent conversation.message from {} to {bob}",
        eve.beam_id
    );
    assert_eq!(direct.json()["error"], text);

    let answer = pair.near.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (502, "DELIVERY_FAILED".to_owned()));
    assert_eq!(
        answer.json()["error"],
        "Federated relay failed with status 502"
    );
    // Over a socket, the error names the nonce.
    let mut socket = pair.near.connect(&eve.beam_id).await;
    socket
        .send(&json!({"type": "intent", "frame": frame}))
        .await;
    let error = socket.next_json().await.unwrap();
    let expected = json!({
        "type": "error",
        "message": "Federated relay failed with status 502",
        "errorCode": "DELIVERY_FAILED",
        "nonce": "nonce-1",
    });
    assert_eq!(error, expected);
    let trace = pair.near.timed_trace("nonce-1").await;
    let peer = pair.far.url();
    let failed = json!({"peerUrl": peer, "transport": "federation", "latencyMs": 0, "errorCode": "DELIVERY_FAILED"});
    assert_eq!(trace.last().unwrap(), &("failed", failed));
    assert!(pair.far.intent("nonce-1").await.is_none());
}

#[tokio::test]
async fn be_092_every_unusable_relay_request_is_502_with_its_reason() {
    let pair = Pair::new().await;
    let source = pair.near.url();
    let headers = [SECRET_HEADER, ("x-beam-source-directory", source.as_str())];
    let deep = "[".repeat(2_000);
    for body in [
        "null",
        "[]",
        "7",
        "{",
        "{}",
        "\"x\"",
        deep.as_str(),
        r#"{"from":"a","to":"b","intent":"c"}"#,
    ] {
        let body = Some(body.to_owned());
        let answer = pair
            .far
            .request("POST", "/federation/relay", &headers, body)
            .await;
        assert_eq!(answer.error(), (502, "FEDERATION_RELAY_ERROR".to_owned()));
    }
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let offline = pair.far.relayed(&source, "1", &frame).await;
    assert_eq!(offline.error(), (502, "FEDERATION_RELAY_ERROR".to_owned()));
    assert_eq!(offline.json()["error"], "agent_offline");
}

#[tokio::test]
async fn a_recipient_that_fails_is_reported_as_such() {
    let pair = Pair::new().await;
    let mut socket = pair.far.connect(&pair.bob.beam_id).await;
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let bob = pair.bob.clone();
    tokio::spawn(async move {
        socket.next_json().await.unwrap();
        socket.send(&bob.failure("nonce-1", "NO_STOCK")).await;
        socket.next_json().await
    });
    let answer = pair.near.post("/intents/send", &frame).await;
    assert_eq!(
        (answer.status, &answer.json()["success"]),
        (200, &json!(false))
    );
    let trace = pair.near.timed_trace("nonce-1").await;
    let (word, details) = trace.last().unwrap();
    assert_eq!(
        (*word, &details["errorCode"]),
        ("failed", &json!("NO_STOCK"))
    );
}

#[tokio::test]
async fn two_directories_that_are_cut_apart_agree_after_a_repetition() {
    let pair = Pair::strangers().await;
    let (near, far) = (&pair.near, &pair.far);
    let port = far.address.port();
    let (carrier, wire) = tokio::task::spawn_blocking(move || {
        let carrier = Carrier::start().unwrap();
        let wire = carrier.wire(port).unwrap();
        (carrier, wire)
    })
    .await
    .unwrap();
    near.add_peer(&format!("http://127.0.0.1:{}", wire.port), 0.5)
        .await;
    far.add_peer(&near.url(), 0.5).await;
    let mut socket = far.connect(&pair.bob.beam_id).await;
    let frame = pair.alice.message(near, &pair.bob, "nonce-1");
    let send = async {
        let answer = near.post("/intents/send", &frame).await;
        assert_eq!(answer.error(), (502, "DELIVERY_FAILED".to_owned()));
    };
    let cut = async {
        let got = socket.next_json().await.unwrap();
        assert_eq!(got["frame"], frame);
        wire.set(Mode::Cut);
    };
    tokio::join!(send, cut);
    let failed = near.timed_trace("nonce-1").await;
    assert_eq!(failed.last().unwrap().0, "failed");
    // While the recipient works, the other side reports that, and delivers nothing.
    wire.set(Mode::Open);
    let early = near.post("/intents/send", &frame).await;
    assert_eq!(early.error(), (502, "DELIVERY_FAILED".to_owned()));

    socket
        .send(&pair.bob.result("nonce-1", &json!({"message": "late"})))
        .await;
    let acked = async {
        while far.timed_trace("nonce-1").await.last().unwrap().0 != "acked" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), acked)
        .await
        .unwrap();
    let again = near.post("/intents/send", &frame).await;
    assert_eq!(
        (again.status, &again.json()["payload"]["message"]),
        (200, &json!("late"))
    );
    for world in [near, far] {
        let trace = world.timed_trace("nonce-1").await;
        let count = |of: &str| trace.iter().filter(|(word, _)| *word == of).count();
        assert_eq!((count("acked"), count("delivered")), (1, 1));
    }
    let silence = tokio::time::timeout(Duration::from_millis(300), socket.next_json()).await;
    assert!(silence.is_err(), "the recipient got the intent once");
    drop(wire);
    tokio::task::spawn_blocking(move || drop(carrier))
        .await
        .unwrap();
}
