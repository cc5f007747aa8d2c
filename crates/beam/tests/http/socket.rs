//! The WebSocket of agents and of the feed.

use std::time::Duration;

use consign_beam::timestamp;
use serde_json::{Value, json};

use crate::world::{Identity, TestSocket, World};

async fn error_of(socket: &mut TestSocket) -> Value {
    let message = socket.next_json().await.unwrap();
    assert_eq!(message["type"], "error", "{message}");
    message
}

/// Waits until the socket of an agent is gone.
async fn until_offline(world: &World, agent: &Identity) {
    let path = format!("/agents/{}", agent.beam_id);
    for _ in 0..500 {
        if world.get(&path).await.json()["connected"] == false {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} stayed connected", agent.beam_id);
}

#[tokio::test]
async fn be_110_a_socket_is_greeted_with_how_it_is_authenticated() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = world.add_agent(&alice).await;
    let path = format!("/ws?beamId={}", alice.beam_id);
    for (path, headers, auth) in [
        (path.clone(), vec![], "identity"),
        (format!("{path}&apiKey={key}"), vec![], "api_key"),
        (path.clone(), vec![("x-api-key", key.as_str())], "api_key"),
        (format!("{path}&apiKey=wrong"), vec![], "identity"),
    ] {
        let mut socket = world.open(&path, &headers).await.unwrap();
        let hello = socket.next_json().await.unwrap();
        assert_eq!(
            hello,
            json!({"type": "connected", "beamId": alice.beam_id, "auth": auth})
        );
    }
}

#[tokio::test]
async fn be_111_sockets_without_an_agent_are_closed_and_a_new_one_replaces_the_old_one() {
    let world = World::new().await;
    let alice = Identity::alice();
    world.add_agent(&alice).await;
    let mut nobody = world.open("/ws?beamId=", &[]).await.unwrap();
    assert_eq!(
        nobody.closed().await,
        (1008, "Missing beamId query parameter".to_owned())
    );
    let mut unknown = world
        .open("/ws?beamId=eve@acme.beam.directory", &[])
        .await
        .unwrap();
    let text = "Agent eve@acme.beam.directory is not registered";
    assert_eq!(unknown.closed().await, (1008, text.to_owned()));
    let mut first = world.connect(&alice.beam_id).await;
    let _second = world.connect(&alice.beam_id).await;
    assert_eq!(
        first.closed().await,
        (1001, "Replaced by new connection".to_owned())
    );
}

#[tokio::test]
async fn from_elsewhere_a_socket_needs_the_key_of_its_agent() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = world.add_agent(&alice).await;
    let mut own = world.connect(&alice.beam_id).await;
    let elsewhere = ("x-forwarded-for", "203.0.113.7");
    let path = format!("/ws?beamId={}", alice.beam_id);
    let wrong = format!("{path}&apiKey=bk_wrong.key");
    for path in [
        path.as_str(),
        wrong.as_str(),
        "/ws?beamId=eve@acme.beam.directory",
        "/ws?feed=intents",
    ] {
        let refused = world.open(path, &[elsewhere]).await;
        assert_eq!(refused.err(), Some(401), "{path}");
    }
    let socket = world.open(&path, &[elsewhere, ("x-api-key", &key)]).await;
    assert!(socket.is_ok());
    assert_eq!(
        own.closed().await.0,
        1001,
        "only the agent itself replaces its socket"
    );
}

#[tokio::test]
async fn be_112_be_066_an_intent_over_a_socket_keeps_its_unknown_fields() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut from = world.connect(&alice.beam_id).await;
    let mut to = world.connect(&bob.beam_id).await;
    let mut frame = alice.message(&world, &bob, "nonce-1");
    frame["x-custom"] = json!({"b": 1, "a": 2});
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let message = to.next_json().await.unwrap();
    assert_eq!(message["frame"], frame);
    assert_eq!(message["senderPublicKey"], alice.public_key());
    assert_eq!(message.get("actingBeamId"), None);
    let mut result = bob.result("nonce-1", &json!({"message": "re"}));
    result["frame"]["x-more"] = json!([1, 2]);
    to.send(&result).await;
    let answer = from.next_json().await.unwrap();
    assert_eq!(answer, result, "the result arrives as it was sent");
}

#[tokio::test]
async fn a_sender_cannot_state_the_latency_of_its_intent() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut from = world.connect(&alice.beam_id).await;
    let mut to = world.connect(&bob.beam_id).await;
    let mut frame = alice.message(&world, &bob, "n-1");
    frame["roundTripLatencyMs"] = json!(999_999);
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let message = to.next_json().await.unwrap();
    assert_eq!(message["frame"], frame, "the recipient gets it unchanged");
    let open = world.until_status("n-1", "delivered").await;
    assert_eq!(open["roundTripLatencyMs"], json!(null));
    to.send(&bob.result("n-1", &json!({}))).await;
    let ended = world.until_status("n-1", "acked").await;
    assert_eq!(ended["roundTripLatencyMs"], 3, "as the result states it");
}

#[tokio::test]
async fn be_113_each_error_names_its_code_and_its_nonce() {
    let world =
        World::with(|settings| settings.result_timeout = Some(Duration::from_secs(2))).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&alice.beam_id).await;
    for (text, message) in [
        ("{", "Invalid message format: must be valid JSON"),
        ("{}", "Invalid message: missing type field"),
        (r#"{"type":"what"}"#, "Unknown message type: what"),
    ] {
        socket.send_text(text.to_owned()).await;
        let error = error_of(&mut socket).await;
        assert_eq!(error, json!({"type": "error", "message": message}));
    }
    let good = alice.message(&world, &bob, "n-1");
    let mut shapeless = good.clone();
    shapeless.as_object_mut().unwrap().remove("to");
    let mut forged = good.clone();
    forged["signature"] = json!("AAAA");
    let denied = alice.message(&world, &alice, "n-1");
    let cases = [
        (
            shapeless,
            "INVALID_INTENT",
            "from, to and intent are required",
        ),
        (forged, "BAD_REQUEST", "Signature verification failed"),
        (
            denied,
            "FORBIDDEN",
            "ACL denied intent conversation.message from alice@acme.beam.directory to alice@acme.beam.directory",
        ),
        (good.clone(), "OFFLINE", "agent_offline"),
    ];
    for (frame, code, message) in cases {
        socket
            .send(&json!({"type": "intent", "frame": frame}))
            .await;
        let error = error_of(&mut socket).await;
        let expected =
            json!({"type": "error", "message": message, "errorCode": code, "nonce": "n-1"});
        assert_eq!(error, expected);
    }
    let mut silent = world.connect(&bob.beam_id).await;
    socket.send(&json!({"type": "intent", "frame": good})).await;
    silent.next_json().await.unwrap();
    // Again while the recipient works on it, and then the end of the first one.
    socket.send(&json!({"type": "intent", "frame": good})).await;
    for (code, message) in [
        (
            "IN_PROGRESS",
            "Intent with nonce n-1 is already being processed",
        ),
        ("TIMEOUT", "Intent timed out waiting for result (2000ms)"),
    ] {
        let error = error_of(&mut socket).await;
        let expected =
            json!({"type": "error", "message": message, "errorCode": code, "nonce": "n-1"});
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn be_113_payload_time_and_a_nonce_of_another_intent_are_bad_requests() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    world
        .allow(&bob.beam_id, "agent.ping", &alice.beam_id)
        .await;
    let mut socket = world.connect(&alice.beam_id).await;
    let offline = alice.message(&world, &bob, "n-used");
    socket
        .send(&json!({"type": "intent", "frame": offline}))
        .await;
    assert_eq!(error_of(&mut socket).await["errorCode"], "OFFLINE");
    let to = &bob.beam_id;
    let payload = json!({"message": "hello"});
    let message = "conversation.message";
    let old = "2020-01-01T00:00:00.000Z";
    for (frame, nonce, text) in [
        (
            alice.frame(&world, to, message, &json!({"message": 7}), "n-schema"),
            "n-schema",
            "message",
        ),
        (
            alice.frame_at(old, to, message, &payload, "n-old"),
            "n-old",
            "Timestamp outside allowed replay window (5 minutes)",
        ),
        (
            alice.frame_at("today", to, message, &payload, "n-today"),
            "n-today",
            "Invalid timestamp format",
        ),
        (
            alice.frame(&world, to, "agent.ping", &payload, "n-used"),
            "n-used",
            "Nonce n-used was already used for a different intent",
        ),
    ] {
        socket
            .send(&json!({"type": "intent", "frame": frame}))
            .await;
        let error = error_of(&mut socket).await;
        assert_eq!(error["errorCode"], "BAD_REQUEST", "{error}");
        assert_eq!(error["nonce"], nonce, "{error}");
        assert!(error["message"].as_str().unwrap().contains(text), "{error}");
        assert_eq!(error.as_object().unwrap().len(), 4, "{error}");
    }
}

#[tokio::test]
async fn be_113_a_sender_above_its_rate_is_told_so() {
    let world = World::with(|settings| settings.rate_per_minute = 1).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&alice.beam_id).await;
    for (nonce, code, status) in [
        ("n-1", "OFFLINE", Value::Null),
        ("n-2", "RATE_LIMITED", json!(429)),
    ] {
        let frame = alice.message(&world, &bob, nonce);
        socket
            .send(&json!({"type": "intent", "frame": frame}))
            .await;
        let error = error_of(&mut socket).await;
        assert_eq!(error["errorCode"], code, "{error}");
        assert_eq!(error["status"], status, "{error}");
        assert_eq!(error["nonce"], nonce, "{error}");
    }
}

#[tokio::test]
async fn be_114_another_agent_sends_in_its_name_only_with_a_delegation() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let carol = Identity::new("carol@acme.beam.directory", 3);
    world.add_agent(&carol).await;
    let mut to = world.connect(&bob.beam_id).await;
    let mut from = world.connect(&carol.beam_id).await;
    // Signed by Alice herself: it was not Alice who sent it over this socket.
    let frame = alice.message(&world, &bob, "n-1");
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let error = error_of(&mut from).await;
    assert_eq!(error["errorCode"], "FORBIDDEN");
    let text = "No active delegation allows carol@acme.beam.directory to send conversation.message for alice@acme.beam.directory";
    assert_eq!(error["message"], text);
    world
        .delegate(&alice.beam_id, &carol.beam_id, "agent.ping")
        .await;
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let error = error_of(&mut from).await;
    assert_eq!(error["message"], text, "a delegation has its scope");
    world
        .delegate(&alice.beam_id, &carol.beam_id, "conversation.message")
        .await;
    // With a delegation, the socket's own key signs.
    from.send(&json!({"type": "intent", "frame": frame})).await;
    assert_eq!(error_of(&mut from).await["errorCode"], "BAD_REQUEST");
    let acting = Identity::new(&alice.beam_id, 3);
    let frame = acting.message(&world, &bob, "n-2");
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let message = to.next_json().await.unwrap();
    assert_eq!(message["actingBeamId"], carol.beam_id);
    assert_eq!(message["senderPublicKey"], carol.public_key());
    to.send(&bob.result("n-2", &json!({}))).await;
    assert_eq!(from.next_json().await.unwrap()["type"], "result");
}

#[tokio::test]
async fn be_115_a_socket_with_its_api_key_may_send_unsigned_intents() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let key = world.add_agent(&alice).await;
    let mut to = world.connect(&bob.beam_id).await;
    let path = format!("/ws?beamId={}&apiKey={key}", alice.beam_id);
    let mut from = world.open(&path, &[]).await.unwrap();
    from.next_json().await.unwrap();
    let mut frame = alice.message(&world, &bob, "n-1");
    frame.as_object_mut().unwrap().remove("signature");
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let message = to.next_json().await.unwrap();
    assert_eq!(message["frame"].get("signature"), None);
    to.send(&bob.result("n-1", &json!({}))).await;
    assert_eq!(from.next_json().await.unwrap()["type"], "result");
    // Without the key, the same frame is refused.
    let mut plain = world.connect(&alice.beam_id).await;
    frame["nonce"] = json!("n-2");
    plain.send(&json!({"type": "intent", "frame": frame})).await;
    assert_eq!(error_of(&mut plain).await["errorCode"], "BAD_REQUEST");
}

#[tokio::test]
async fn be_116_only_the_recipient_answers() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let eve = Identity::new("eve@acme.beam.directory", 66);
    world.add_agent(&eve).await;
    let mut to = world.connect(&bob.beam_id).await;
    let mut other = world.connect(&eve.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let answering = async {
        to.next_json().await.unwrap();
        other
            .send(&eve.result("n-1", &json!({"message": "from eve"})))
            .await;
        // The server reads sockets independently; what follows must not overtake.
        other.send_text("{".to_owned()).await;
        error_of(&mut other).await;
        to.send(&bob.result("n-1", &json!({"message": "from bob"})))
            .await;
    };
    let (answer, ()) = tokio::join!(world.post("/intents/send", &frame), answering);
    assert_eq!(answer.json()["payload"]["message"], "from bob");
    // Late answers of others are ignored as well.
    other.send(&eve.failure("n-1", "LIE")).await;
    other.send_text("{".to_owned()).await;
    error_of(&mut other).await;
    let again = world.post("/intents/send", &frame).await;
    assert_eq!(again.text, answer.text);
}

#[tokio::test]
async fn be_117_the_feed_shows_dispatch_delivery_and_end() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut feed = world.open("/ws?feed=intents", &[]).await.unwrap();
    assert_eq!(
        feed.next_json().await.unwrap(),
        json!({"type": "feed_connected"})
    );
    let mut to = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let payload = json!({});
    let answering = to.answer(&bob, &payload);
    let (_, _) = tokio::join!(world.post("/intents/send", &frame), answering);
    let mut states = Vec::new();
    while states.last() != Some(&json!("acked")) {
        let message = feed.next_json().await.unwrap();
        assert_eq!(
            (&message["type"], &message["entry"]["nonce"]),
            (&json!("intent_feed"), &json!("n-1"))
        );
        let entry = &message["entry"];
        let has_ended = entry["status"] == "acked";
        let completed_at = entry["completedAt"].as_str();
        assert_eq!(completed_at.is_some(), has_ended, "{entry}");
        assert!(completed_at.is_none_or(|text| timestamp::parse(text).is_some()));
        let latency = if has_ended { json!(3) } else { Value::Null };
        let expected = json!({
            "nonce": "n-1",
            "from": alice.beam_id,
            "to": bob.beam_id,
            "intentType": "conversation.message",
            "timestamp": frame["timestamp"],
            "completedAt": completed_at,
            "roundTripLatencyMs": latency,
            "status": entry["status"],
            "errorCode": null,
        });
        assert_eq!(*entry, expected);
        states.push(entry["status"].clone());
    }
    assert_eq!(states, ["dispatched", "delivered", "acked"]);
    // An end without success says why.
    drop(to);
    let failing = alice.message(&world, &bob, "n-2");
    until_offline(&world, &bob).await;
    let answer = world.post("/intents/send", &failing).await;
    assert_eq!(answer.error().1, "OFFLINE");
    for (status, code) in [("dispatched", Value::Null), ("failed", json!("OFFLINE"))] {
        let message = feed.next_json().await.unwrap();
        let entry = &message["entry"];
        assert_eq!(
            (&entry["nonce"], &entry["status"], &entry["errorCode"]),
            (&json!("n-2"), &json!(status), &code),
            "{entry}"
        );
    }
}

#[tokio::test]
async fn an_agent_that_does_not_read_its_errors_is_told_to_try_again_later() {
    let world = World::new().await;
    let (_, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    // Each of them is answered with an error that repeats it.
    let large = json!({"type": "x".repeat(60_000)}).to_string();
    let mut sent = 0;
    while sent < 400 && socket.try_send_text(large.clone()).await {
        sent += 1;
    }
    assert_eq!(socket.closed().await, (1013, "Slow reader".to_owned()));
}
