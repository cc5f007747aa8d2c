//! Peers that lie, flood, stall or cannot be reached.

use std::time::Duration;

use consign_beam::outbound::RELAY_RESPONSE_BYTES_MAX;
use serde_json::{Value, json};

use crate::federation_world::{Pair, Reply, Stub, described, federated};
use crate::world::{Identity, World};

/// Agents that no directory of these tests has.
fn carol() -> Identity {
    Identity::new("carol@other.beam.directory", 5)
}

/// A directory with Alice and one peer.
async fn alone_with(peer: &Stub) -> (World, Identity) {
    let world = World::with(|settings| {
        federated(settings);
        settings.result_timeout = Some(Duration::from_secs(2));
    })
    .await;
    let alice = Identity::alice();
    world.add_agent(&alice).await;
    world.add_peer(&peer.url, 0.5).await;
    (world, alice)
}

fn result_json(nonce: &str) -> Value {
    json!({"v": "1", "success": true, "nonce": nonce, "timestamp": "2026-01-01T00:00:00.000Z"})
}

#[tokio::test]
async fn be_136_peers_that_are_unreachable_slow_or_wrong_are_skipped() {
    let pair = Pair::new().await;
    let bob = pair.bob.clone();
    let mallory = Identity::new(&bob.beam_id, 66);
    let slow = Stub::start(|_| Reply::Drip(Vec::new())).await;
    let other = Stub::with_agent(described(&carol()), |_| Reply::Raw(Vec::new())).await;
    let elsewhere = Stub::with_agent(described(&mallory), |_| Reply::Raw(Vec::new())).await;
    let location = format!("location: {}\r\n", elsewhere.url);
    let redirect = Stub::start(move |_| Reply::Status(302, location.clone(), String::new())).await;
    let mut no_key = described(&bob);
    no_key["public_key"] = json!("AAAA");
    let no_key = Stub::with_agent(no_key, |_| Reply::Raw(Vec::new())).await;
    let mut large = described(&bob);
    large["display_name"] = json!("x".repeat(100_000));
    let large = Stub::with_agent(large, |_| Reply::Raw(Vec::new())).await;
    let hostile = [&slow, &other, &redirect, &no_key, &large];
    for peer in hostile {
        pair.near.add_peer(&peer.url, 0.9).await;
    }
    pair.near.add_peer("http://127.0.0.1:1", 1.0).await;
    let body = json!({"beamId": bob.beam_id});
    let found = pair
        .near
        .as_directory("POST", "/federation/resolve", Some(&body))
        .await;
    assert_eq!(found.status, 200, "{}", found.text);
    let found = found.json();
    assert_eq!(
        (&found["scope"], &found["directoryUrl"]),
        (&json!("peer"), &json!(pair.far.url()))
    );
    assert_eq!(found["agent"]["public_key"], bob.public_key());
    assert!(hostile.iter().all(|peer| peer.asked().len() == 1));
    assert!(elsewhere.asked().is_empty(), "a redirect is not followed");
}

#[tokio::test]
async fn be_136_an_intent_for_an_agent_that_no_peer_has_is_offline() {
    let peer = Stub::start(|_| Reply::Status(404, String::new(), "{}".to_owned())).await;
    let (world, alice) = alone_with(&peer).await;
    world.add_peer("http://127.0.0.1:1", 1.0).await;
    let frame = alice.message(&world, &carol(), "nonce-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    let trace = world.timed_trace("nonce-1").await;
    let failed = json!({"transport": "federation", "errorCode": "OFFLINE"});
    assert_eq!(
        trace[3..],
        [
            ("dispatched", json!({"deliveryTarget": "federation"})),
            ("failed", failed)
        ]
    );
}

#[tokio::test]
async fn twenty_intents_for_an_unknown_agent_ask_each_peer_once() {
    let peer = Stub::start(|_| Reply::Status(404, String::new(), "{}".to_owned())).await;
    let (world, alice) = alone_with(&peer).await;
    for number in 0..20 {
        let frame = alice.message(&world, &carol(), &format!("nonce-{number}"));
        let answer = world.post("/intents/send", &frame).await;
        assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    }
    assert_eq!(peer.asked().len(), 1);
    // A new peer may know the agent.
    let body = json!({"directoryUrl": peer.url, "publicKey": "k"});
    world
        .as_directory("POST", "/federation/peers", Some(&body))
        .await;
    let before = peer.asked().len();
    let frame = alice.message(&world, &carol(), "nonce-last");
    world.post("/intents/send", &frame).await;
    assert_eq!(peer.asked().len(), before + 1);
}

/// Sends to a peer that answers a relay like this, and returns the text of the error.
async fn relay_error(reply: impl Fn() -> Reply + Send + Sync + 'static) -> String {
    let peer = Stub::with_agent(described(&carol()), move |_| reply()).await;
    let (world, alice) = alone_with(&peer).await;
    let frame = alice.message(&world, &carol(), "nonce-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(
        answer.error(),
        (502, "DELIVERY_FAILED".to_owned()),
        "{}",
        answer.text
    );
    let trace = world.timed_trace("nonce-1").await;
    let (word, details) = trace.last().unwrap();
    assert_eq!(
        (*word, &details["errorCode"]),
        ("failed", &json!("DELIVERY_FAILED"))
    );
    assert!(
        trace
            .iter()
            .all(|(word, _)| !["delivered", "acked"].contains(word))
    );
    let asked = peer.asked();
    let relayed: Value = serde_json::from_str(&asked.last().unwrap().body).unwrap();
    assert_eq!(relayed, frame, "the frame is sent unchanged");
    answer.json()["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn be_133_an_answer_that_is_no_result_for_the_nonce_is_a_failed_delivery() {
    let no_result = "Federated relay failed: the response is not a result for this nonce";
    for body in [
        result_json("another-nonce"),
        json!({"success": "yes", "nonce": "nonce-1"}),
        json!({"success": true}),
        json!([result_json("nonce-1")]),
        json!(null),
    ] {
        let answer = relay_error(move || Reply::Json(body.clone())).await;
        assert_eq!(answer, no_result);
    }
    let text = relay_error(|| Reply::Status(200, String::new(), "<html>".to_owned())).await;
    assert_eq!(text, no_result);
}

#[tokio::test]
async fn an_answer_with_another_status_is_a_failed_delivery_and_no_redirect_is_followed() {
    for status in [400, 403, 404, 413, 500, 503] {
        let body = result_json("nonce-1").to_string();
        let text = relay_error(move || Reply::Status(status, String::new(), body.clone())).await;
        assert_eq!(text, format!("Federated relay failed with status {status}"));
    }
    let elsewhere = Stub::start(|_| Reply::Json(result_json("nonce-1"))).await;
    for status in [301, 302, 307, 308] {
        let location = format!("location: {}/federation/relay\r\n", elsewhere.url);
        let text =
            relay_error(move || Reply::Status(status, location.clone(), String::new())).await;
        assert_eq!(text, format!("Federated relay failed with status {status}"));
    }
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_too_large_incomplete_or_too_slow_is_a_failed_delivery() {
    let mut large = result_json("nonce-1");
    large["payload"] = json!({"x": "x".repeat(RELAY_RESPONSE_BYTES_MAX)});
    let text = relay_error(move || Reply::Json(large.clone())).await;
    assert_eq!(text, "Federated relay failed: the response is too large");
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n";
    let half = format!("{head}{}", result_json("nonce-1"));
    let text = relay_error(move || Reply::Raw(half.clone().into_bytes())).await;
    assert_eq!(text, "Federated relay failed: the response is incomplete");
    let text = relay_error(|| Reply::Raw(b"SSH-2.0-x\r\n".to_vec())).await;
    assert_eq!(text, "Federated relay failed: the response is incomplete");
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = relay_error(move || Reply::Drip(chunked.as_bytes()[..1].to_vec())).await;
    assert!(text.starts_with("Federated relay failed: "), "{text}");
    let text = relay_error(|| Reply::Drip(Vec::new())).await;
    assert_eq!(text, "Federated relay failed: no complete response in time");
}

#[tokio::test]
async fn only_a_registered_source_vouches_for_a_sender_and_never_for_a_local_one() {
    let pair = Pair::new().await;
    let far = &pair.far;
    let refused = (502, "FEDERATION_RELAY_ERROR".to_owned());
    let mallory = Identity::new(&pair.alice.beam_id, 66);
    let liar = Stub::with_agent(described(&mallory), |_| Reply::Raw(Vec::new())).await;
    let forged = mallory.message(far, &pair.bob, "nonce-1");
    for source in [
        liar.url.as_str(),
        "",
        "http://127.0.0.1:1",
        "file:///etc/passwd",
    ] {
        let answer = far.relayed(source, "1", &forged).await;
        assert_eq!(answer.error(), refused, "{source}");
        assert_eq!(
            answer.json()["error"],
            "The source directory is not a registered peer"
        );
    }
    assert!(liar.asked().is_empty());
    // The real directory of Alice does not have this key.
    let answer = far.relayed(&pair.near.url(), "1", &forged).await;
    assert_eq!(answer.json()["error"], "Signature verification failed");
    // Her directory described her first, so another peer cannot replace her key.
    far.add_peer(&liar.url, 1.0).await;
    let answer = far.relayed(&liar.url, "1", &forged).await;
    let unknown = format!("Sender {} is not registered", pair.alice.beam_id);
    assert_eq!(
        (answer.error(), answer.json()["error"].as_str()),
        (refused.clone(), Some(unknown.as_str()))
    );
    // A local sender has its local key.
    let as_bob = Identity::new(&pair.bob.beam_id, 66);
    let as_bob = as_bob.message(far, &pair.bob, "nonce-2");
    let answer = far.relayed(&liar.url, "1", &as_bob).await;
    assert_eq!(answer.json()["error"], "Signature verification failed");
    assert!(far.intent("nonce-1").await.is_none() && far.intent("nonce-2").await.is_none());
}

#[tokio::test]
async fn be_132_a_list_of_a_second_peer_does_not_take_over_agents_of_the_first_one() {
    let pair = Pair::new().await;
    let body = json!({"beamId": pair.bob.beam_id});
    let resolve = async || {
        let found = pair
            .near
            .as_directory("POST", "/federation/resolve", Some(&body))
            .await;
        let found = found.json();
        (
            found["directoryUrl"].clone(),
            found["agent"]["public_key"].clone(),
        )
    };
    let expected = (json!(pair.far.url()), json!(pair.bob.public_key()));
    assert_eq!(resolve().await, expected);
    let mallory = [
        Identity::new(&pair.bob.beam_id, 66),
        Identity::new(&pair.alice.beam_id, 66),
    ];
    let list = json!({"agents": mallory.iter().map(described).collect::<Vec<_>>()});
    let liar = Stub::start(move |_| Reply::Json(list.clone())).await;
    let new = json!({"directoryUrl": liar.url, "publicKey": "k", "trustLevel": 1});
    let registered = pair
        .near
        .as_directory("POST", "/federation/peers", Some(&new))
        .await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    assert_eq!(resolve().await, expected);
    let alice = format!("/federation/agents/{}", pair.alice.beam_id);
    let alice = pair.near.get(&alice).await.json();
    assert_eq!(
        (&alice["scope"], &alice["agent"]["public_key"]),
        (&json!("local"), &json!(pair.alice.public_key()))
    );
}

#[tokio::test]
async fn directories_that_point_at_each_other_do_not_loop() {
    let pair = Pair::new().await;
    // Each directory believes that the other one has Carol.
    for (world, other) in [(&pair.near, &pair.far), (&pair.far, &pair.near)] {
        let list = json!({"agents": [described(&carol())]});
        let stub = Stub::start(move |_| Reply::Json(list.clone())).await;
        let new = json!({"directoryUrl": stub.url, "publicKey": "k"});
        world
            .as_directory("POST", "/federation/peers", Some(&new))
            .await;
        world.repoint(&carol().beam_id, &other.url()).await;
    }
    let frame = pair.alice.message(&pair.near, &carol(), "nonce-1");
    let answer = pair.near.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (502, "DELIVERY_FAILED".to_owned()));
    for world in [&pair.near, &pair.far] {
        assert_eq!(
            world.timed_trace("nonce-1").await.last().unwrap().0,
            "failed"
        );
    }
}

#[tokio::test]
async fn a_source_that_floods_is_refused_after_its_allowance() {
    let pair = Pair::new().await;
    let limited = World::with(|settings| {
        federated(settings);
        settings.rate_per_minute = 1;
    })
    .await;
    let source = pair.near.url();
    limited.add_peer(&source, 0.5).await;
    let mut texts = Vec::new();
    for number in 0..11 {
        let mut frame = pair
            .alice
            .message(&limited, &pair.bob, &format!("nonce-{number}"));
        frame["signature"] = json!("AAAA");
        let answer = limited.relayed(&source, "1", &frame).await;
        assert_eq!(answer.status, 502);
        texts.push(answer.json()["error"].as_str().unwrap().to_owned());
    }
    assert!(
        texts[..10]
            .iter()
            .all(|text| text == "Signature verification failed"),
        "{texts:?}"
    );
    assert_eq!(texts[10], format!("Rate limit exceeded for {source}"));
}
