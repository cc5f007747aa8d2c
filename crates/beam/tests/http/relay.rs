//! Intents over HTTP: checks, nonces, results.

use std::sync::Arc;
use std::time::Duration;

use consign_beam::timestamp;
use consign_kernel::command::{Advance, Command};
use consign_kernel::ids::SECOND_US;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::Face;
use consign_kernel::state::Verb;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::admin::with_roles;
use crate::observed::Viewer;
use crate::world::{Answer, Identity, TestSocket, World};

/// Of an intent that must not be delivered, so that a second delivery fails soon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers everything with this payload, and counts.
fn answer_all(mut socket: TestSocket, identity: Identity) -> tokio::task::JoinHandle<u32> {
    tokio::spawn(async move {
        let mut count = 0;
        while let Some(message) = socket.next_json().await {
            let nonce = message["frame"]["nonce"].as_str().unwrap();
            let result = identity.result(nonce, &json!({"message": "re"}));
            socket.send(&result).await;
            count += 1;
        }
        count
    })
}

#[track_caller]
pub(crate) fn refused(answer: &Answer, text: &str) {
    assert_eq!(
        answer.error(),
        (400, "INVALID_INTENT".to_owned()),
        "{}",
        answer.text
    );
    assert_eq!(answer.json()["error"], text);
}

#[tokio::test]
async fn be_094_an_intent_is_answered_and_its_repetition_gets_the_same_bytes() {
    let world = World::with(|settings| settings.result_timeout = Some(ANSWER_TIMEOUT)).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let sent = frame.clone();
    let answering = tokio::spawn(async move {
        let got = socket.answer(&bob, &json!({"message": "re: hello"})).await;
        (socket, got)
    });
    let first = world.post("/intents/send", &frame).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(first.json()["payload"]["message"], "re: hello");
    let (_socket, got) = answering.await.unwrap();
    assert_eq!(got, sent);
    let again = world.post("/intents/send", &frame).await;
    assert_eq!((again.status, again.text), (200, first.text));
}

#[tokio::test]
async fn be_095_be_100_a_failure_of_the_recipient_is_the_answer_and_stays_it() {
    let world = World::with(|settings| settings.result_timeout = Some(ANSWER_TIMEOUT)).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let answering = tokio::spawn(async move {
        let message = socket.next_json().await.unwrap();
        let nonce = message["frame"]["nonce"].as_str().unwrap();
        socket.send(&bob.failure(nonce, "OUT_OF_STOCK")).await;
        socket
    });
    let first = world.post("/intents/send", &frame).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let result = first.json();
    assert_eq!(
        (&result["success"], &result["errorCode"]),
        (&json!(false), &json!("OUT_OF_STOCK"))
    );
    let _socket = answering.await.unwrap();
    let again = world.post("/intents/send", &frame).await;
    assert_eq!((again.status, again.text), (200, first.text));
    let recent = world.get("/intents/recent").await.json();
    assert_eq!(recent["intents"][0]["status"], "failed");
    assert_eq!(recent["intents"][0]["errorCode"], "OUT_OF_STOCK");
}

#[tokio::test]
async fn be_065_be_068_be_093_what_is_refused_leaves_no_row_and_its_nonce_stays_free() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let good = alice.message(&world, &bob, "nonce-1");
    let mut tampered = good.clone();
    tampered["payload"]["message"] = json!("hullo");
    refused(
        &world.post("/intents/send", &tampered).await,
        "Signature verification failed",
    );
    for (offset_s, is_refused) in [(-301, true), (301, true), (2, false)] {
        let at = consign_kernel::ids::Micros(world.engine.wall().0 + offset_s * 1_000_000);
        let at = consign_beam::timestamp::format(at);
        let payload = json!({"message": "hello"});
        let frame = alice.frame_at(
            &at,
            &bob.beam_id,
            "conversation.message",
            &payload,
            "nonce-1",
        );
        let answer = world.post("/intents/send", &frame).await;
        if is_refused {
            let text = "Timestamp outside allowed replay window (5 minutes)";
            refused(&answer, text);
        } else {
            assert_eq!(
                answer.error(),
                (503, "OFFLINE".to_owned()),
                "accepted, and nobody is there"
            );
        }
    }
    let stranger = Identity::new("eve@acme.beam.directory", 66);
    let frame = stranger.message(&world, &bob, "nonce-2");
    refused(
        &world.post("/intents/send", &frame).await,
        "Sender eve@acme.beam.directory is not registered",
    );
    let back = bob.message(&world, &alice, "nonce-3");
    let answer = world.post("/intents/send", &back).await;
    assert_eq!(answer.error(), (403, "FORBIDDEN".to_owned()));
    let text = "ACL denied intent conversation.message from bob@acme.beam.directory to alice@acme.beam.directory";
    assert_eq!(answer.json()["error"], text);
    let recent = world.get("/intents/recent").await.json();
    assert_eq!(recent["total"], 1, "only the one that was accepted");
    let answering = answer_all(world.connect(&alice.beam_id).await, alice.clone());
    world
        .allow(&alice.beam_id, "conversation.message", "*")
        .await;
    assert_eq!(world.post("/intents/send", &back).await.status, 200);
    answering.abort();
}

#[tokio::test]
async fn be_091_unknown_intents_and_payloads_outside_of_their_schema_are_refused() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    for intent in ["no.such", "quote.request"] {
        world.allow(&bob.beam_id, intent, "*").await;
    }
    let cases = [
        (
            "no.such",
            json!({}),
            "Unknown intent type: no.such".to_owned(),
        ),
        (
            "quote.request",
            json!({"sku": 7}),
            "Invalid payload for intent quote.request at /: must have required property 'quantity'"
                .to_owned(),
        ),
        (
            "quote.request",
            json!({"sku": "a", "quantity": 2.5, "shipTo": "b"}),
            "Invalid payload for intent quote.request at /quantity: must be integer".to_owned(),
        ),
    ];
    for (number, (intent, payload, text)) in cases.into_iter().enumerate() {
        let nonce = format!("nonce-{number}");
        let frame = alice.frame(&world, &bob.beam_id, intent, &payload, &nonce);
        refused(&world.post("/intents/send", &frame).await, &text);
    }
}

#[tokio::test]
async fn be_067_be_092_bodies_that_are_no_frames_are_refused_by_their_shape() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    for (body, code) in [
        ("{", "INVALID_JSON"),
        ("[1]", "INVALID_BODY"),
        ("null", "INVALID_BODY"),
        ("7", "INVALID_BODY"),
    ] {
        let answer = world
            .request("POST", "/intents/send", &[], Some(body.to_owned()))
            .await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{body}");
    }
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let answer = world
        .request("POST", "/intents/send", &[], Some(deep))
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    // Signed a second ago, so that the time that is filled in is another one.
    let before = consign_kernel::ids::Micros(world.engine.wall().0 - 1_000_000);
    let before = consign_beam::timestamp::format(before);
    let payload = json!({"message": "hello"});
    let frame = alice.frame_at(
        &before,
        &bob.beam_id,
        "conversation.message",
        &payload,
        "nonce-1",
    );
    let without = |name: &str| {
        let mut frame = frame.clone();
        frame.as_object_mut().unwrap().remove(name);
        frame
    };
    let with = |name: &str, value: Value| {
        let mut frame = frame.clone();
        frame[name] = value;
        frame
    };
    let missing = "from, to and intent are required";
    for name in ["from", "to", "intent"] {
        refused(&world.post("/intents/send", &without(name)).await, missing);
    }
    refused(
        &world
            .post("/intents/send", &with("payload", json!([])))
            .await,
        "payload must be an object",
    );
    let text = "signature must be a string when provided";
    refused(
        &world
            .post("/intents/send", &with("signature", json!(7)))
            .await,
        text,
    );
    refused(
        &world
            .post("/intents/send", &with("signature", json!("")))
            .await,
        "signature is required",
    );
    // A missing nonce or timestamp is filled in, so the signature no longer fits.
    for name in ["nonce", "timestamp"] {
        refused(
            &world.post("/intents/send", &without(name)).await,
            "Signature verification failed",
        );
    }
    let mut aliased = without("payload");
    aliased["params"] = frame["payload"].clone();
    let answer = world.post("/intents/send", &aliased).await;
    assert_eq!(
        answer.error(),
        (503, "OFFLINE".to_owned()),
        "params stands for payload"
    );
}

#[tokio::test]
async fn a_missing_payload_is_an_empty_one_and_its_signature_stays_valid() {
    let world = World::with(|settings| settings.result_timeout = Some(ANSWER_TIMEOUT)).await;
    let (alice, bob) = world.alice_and_bob().await;
    world.allow(&bob.beam_id, "agent.ping", "*").await;
    let mut socket = world.connect(&bob.beam_id).await;
    let empty = json!({});
    for (nonce, absent) in [("n-left-out", None), ("n-null", Some(Value::Null))] {
        let signed = alice.frame(&world, &bob.beam_id, "agent.ping", &empty, nonce);
        let mut frame = signed.clone();
        frame.as_object_mut().unwrap().remove("payload");
        if let Some(value) = absent {
            frame["payload"] = value;
        }
        let (answer, got) = tokio::join!(
            world.post("/intents/send", &frame),
            socket.answer(&bob, &empty),
        );
        assert_eq!(answer.status, 200, "{nonce}: {}", answer.text);
        assert_eq!(got, signed, "the recipient verifies what was signed");
    }
    // The payload that a type of the catalog requires is still required.
    let mut frame = alice.frame(
        &world,
        &bob.beam_id,
        "conversation.message",
        &empty,
        "n-required",
    );
    frame.as_object_mut().unwrap().remove("payload");
    refused(
        &world.post("/intents/send", &frame).await,
        "Invalid payload for intent conversation.message at /: must have required property 'message'",
    );
    // A payload that was signed and then left out is another one.
    let mut frame = alice.message(&world, &bob, "n-signed");
    frame.as_object_mut().unwrap().remove("payload");
    refused(
        &world.post("/intents/send", &frame).await,
        "Signature verification failed",
    );
}

#[tokio::test]
async fn be_069_a_body_above_64_kib_is_refused_with_and_without_its_length() {
    let world = World::new().await;
    let large = json!({"from": "x".repeat(70_000)}).to_string();
    let answer = world
        .request("POST", "/intents/send", &[], Some(large.clone()))
        .await;
    assert_eq!(answer.error(), (413, "SHIELD_PAYLOAD_TOO_LARGE".to_owned()));
    assert_eq!(answer.json()["error"], "Payload too large (max 64KB)");
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let answer = world
        .raw(
            "POST",
            "/intents/send",
            "transfer-encoding: chunked\r\n",
            &chunked,
        )
        .await;
    assert_eq!(answer.error(), (413, "SHIELD_PAYLOAD_TOO_LARGE".to_owned()));
}

#[tokio::test]
async fn be_096_an_intent_for_an_absent_agent_is_delivered_when_it_is_sent_again() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let frame = alice.message(&world, &bob, "nonce-1");
    for _ in 0..2 {
        let answer = world.post("/intents/send", &frame).await;
        assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
        assert_eq!(answer.json()["error"], "agent_offline");
    }
    let answering = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    assert_eq!(world.post("/intents/send", &frame).await.status, 200);
    assert_eq!(world.post("/intents/send", &frame).await.status, 200);
    let trace = world.trace("nonce-1").await;
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(
        stages,
        [
            "received",
            "validated",
            "dispatched",
            "failed",
            "queued",
            "dispatched",
            "failed",
            "queued",
            "dispatched",
            "dispatched",
            "delivered",
            "acked",
        ]
    );
    assert_eq!(trace[4].1["retry"], true);
    assert_eq!(trace[4].1["previousErrorCode"], "OFFLINE");
    drop(world);
    assert_eq!(answering.await.unwrap(), 1, "the handler ran once");
}

#[tokio::test]
async fn be_096_a_repeated_nonce_delivers_the_new_frame_and_the_trace_says_which() {
    let world = World::with(with_roles).await;
    let (alice, bob) = world.alice_and_bob().await;
    let now = timestamp::parse(&world.now_text()).unwrap();
    let at = |seconds: i64| timestamp::format(now.plus(seconds * SECOND_US));
    let frame = |seconds: i64, text: &str| {
        let (to, payload) = (&bob.beam_id, json!({"message": text}));
        alice.frame_at(&at(seconds), to, "conversation.message", &payload, "n-1")
    };
    let first = world.post("/intents/send", &frame(0, "first")).await;
    assert_eq!(first.error(), (503, "OFFLINE".to_owned()));
    let mut socket = world.connect(&bob.beam_id).await;
    let repeated = frame(60, "second");
    let payload = json!({});
    let (answer, delivered) = tokio::join!(
        world.post("/intents/send", &repeated),
        socket.answer(&bob, &payload),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(delivered, repeated);
    let trace = world.trace("n-1").await;
    let (stage, details) = &trace[4];
    assert_eq!(*stage, "queued", "{trace:?}");
    assert_eq!(details["timestamp"], at(60), "{details}");
    let digest = HEXLOWER.encode(&Sha256::digest(r#"{"message":"second"}"#));
    assert_eq!(details["payloadSha256"], digest, "{details}");

    let shown = Viewer::of(&world).await.trace("n-1").await;
    assert_eq!(shown["intent"]["timestamp"], at(60), "{shown}");
    assert_eq!(shown["stages"][0]["timestamp"], at(0), "{shown}");
}

#[tokio::test]
async fn be_097_of_two_concurrent_sends_one_is_delivered_and_one_is_in_progress() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let second = async {
        let message = socket.next_json().await.unwrap();
        let answer = world.post("/intents/send", &frame).await;
        assert_eq!(answer.error(), (409, "IN_PROGRESS".to_owned()));
        let text = "Intent with nonce nonce-1 is already being processed";
        assert_eq!(answer.json()["error"], text);
        let nonce = message["frame"]["nonce"].as_str().unwrap();
        socket.send(&bob.result(nonce, &json!({}))).await;
    };
    let (first, ()) = tokio::join!(world.post("/intents/send", &frame), second);
    assert_eq!(first.status, 200);
}

#[tokio::test]
async fn be_098_a_nonce_belongs_to_one_intent() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    world.allow(&bob.beam_id, "agent.ping", "*").await;
    let frame = alice.message(&world, &bob, "nonce-1");
    world.post("/intents/send", &frame).await;
    let other = alice.frame(&world, &bob.beam_id, "agent.ping", &json!({}), "nonce-1");
    let text = "Nonce nonce-1 was already used for a different intent";
    refused(&world.post("/intents/send", &other).await, text);
}

#[tokio::test]
async fn be_099_without_a_result_the_intent_times_out() {
    let timeout = Duration::from_millis(300);
    let world = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let (alice, bob) = world.alice_and_bob().await;
    let _socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    assert_eq!(
        answer.json()["error"],
        "Intent timed out waiting for result (300ms)"
    );
    let trace = world.trace("nonce-1").await;
    let (stage, details) = trace.last().unwrap();
    assert_eq!((*stage, &details["timeoutMs"]), ("failed", &json!(300)));
    assert_eq!(details["errorCode"], "TIMEOUT");
}

#[tokio::test(flavor = "multi_thread")]
async fn be_094_be_008_two_results_at_the_same_time_leave_one_answer() {
    let world = Arc::new(World::with(|settings| settings.rate_per_minute = 1_000).await);
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    for number in 0..60 {
        let nonce = format!("nonce-{number}");
        let frame = alice.message(&world, &bob, &nonce);
        let sender = {
            let (world, frame) = (Arc::clone(&world), frame.clone());
            tokio::spawn(async move { world.post("/intents/send", &frame).await })
        };
        socket.next_json().await.unwrap();
        for answer in ["first", "second"] {
            let result = bob.result(&nonce, &json!({"message": answer}));
            socket.send(&result).await;
        }
        let answer = sender.await.unwrap();
        let again = world.post("/intents/send", &frame).await;
        assert_eq!((answer.status, &answer.text), (200, &again.text));
        let trace = world.trace(&nonce).await;
        let acked = trace.iter().filter(|(stage, _)| *stage == "acked");
        assert_eq!(acked.count(), 1, "{trace:?}");
    }
}

/// After a suspend, the lease of a relay has ended before its timers, and the sender may have repeated the nonce.
#[tokio::test]
async fn be_097_the_timeout_of_an_earlier_attempt_does_not_end_a_later_one() {
    let timeout = Duration::from_millis(900);
    let world = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let world = Arc::new(world);
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let send = || {
        let (world, frame) = (Arc::clone(&world), frame.clone());
        tokio::spawn(async move { world.post("/intents/send", &frame).await })
    };
    let earlier = send();
    socket.next_json().await.unwrap();
    world.until_status("nonce-1", "delivered").await;
    // As the end of the lease does.
    let key = OnceKey {
        scope: Scope::BeamNonce,
        owner: String::new(),
        key: "nonce-1".to_owned(),
    };
    let used = world.engine.first_use(key).await.unwrap().unwrap();
    let mut fail = Advance::by_system(used.intent.unwrap(), Face::Beam, Verb::Fail);
    fail.error = Some("TIMEOUT: suspended".to_owned());
    let fail = Command::Advance(Box::new(fail));
    world.engine.apply(None, fail).await.unwrap();
    tokio::time::sleep(timeout / 2).await;
    let later = send();
    socket.next_json().await.unwrap();
    let answer = earlier.await.unwrap();
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    let result = bob.result("nonce-1", &json!({"message": "in time"}));
    socket.send(&result).await;
    assert_eq!(later.await.unwrap().status, 200);
    let trace = world.trace("nonce-1").await;
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    let twice = ["queued", "dispatched", "dispatched", "delivered", "acked"];
    assert_eq!(stages[5..6], ["failed"]);
    assert_eq!(stages[6..], twice);
}

#[tokio::test]
async fn be_118_a_result_after_the_timeout_ends_the_intent_and_is_repeated() {
    let timeout = Duration::from_millis(300);
    let world = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    let message = socket.next_json().await.unwrap();
    let nonce = message["frame"]["nonce"].as_str().unwrap();
    socket
        .send(&bob.result(nonce, &json!({"message": "late"})))
        .await;
    let answer = world.until_status("nonce-1", "acked").await;
    assert_eq!(answer["errorCode"], Value::Null);
    let again = world.post("/intents/send", &frame).await;
    assert_eq!(
        (again.status, &again.json()["payload"]["message"]),
        (200, &json!("late"))
    );
    // A second answer changes nothing.
    socket.send(&bob.failure(nonce, "TOO_LATE")).await;
    let third = world.post("/intents/send", &frame).await;
    assert_eq!(third.text, again.text);
    let trace = world.trace("nonce-1").await;
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(
        stages[4..],
        [
            "delivered",
            "failed",
            "queued",
            "dispatched",
            "delivered",
            "acked"
        ]
    );
    assert_eq!(trace[9].1["lateResult"], true);
    assert_eq!(trace[9].1["previousStatus"], "failed");
}

#[tokio::test]
async fn be_102_recent_intents_and_the_catalog_have_their_shapes() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let answering = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    for number in 0..3 {
        let frame = alice.message(&world, &bob, &format!("nonce-{number}"));
        assert_eq!(world.post("/intents/send", &frame).await.status, 200);
    }
    let answer = world.get("/intents/recent?limit=2").await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let recent = answer.json();
    let nonces: Vec<_> = recent["intents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["nonce"].clone())
        .collect();
    assert_eq!(nonces, ["nonce-2", "nonce-1"]);
    let mut names: Vec<_> = recent["intents"][0]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "completedAt",
            "errorCode",
            "from",
            "intentType",
            "nonce",
            "roundTripLatencyMs",
            "status",
            "timestamp",
            "to"
        ]
    );
    assert_eq!(
        recent["intents"][0]["roundTripLatencyMs"], 3,
        "as the recipient states it"
    );
    let catalog = world.get("/intents/catalog").await.json();
    assert_eq!(catalog["intents"].as_array().unwrap().len(), 11);
    // From elsewhere, an agent sees its own intents only, and a stranger none.
    let stranger = world
        .request_elsewhere("GET", "/intents/recent", &[], None)
        .await;
    assert_eq!(stranger.error(), (401, "UNAUTHORIZED".to_owned()));
    let carol = Identity::new("carol@acme.beam.directory", 3);
    let key = world.add_agent(&carol).await;
    let own = world
        .request_elsewhere("GET", "/intents/recent", &[("x-api-key", &key)], None)
        .await;
    assert_eq!(own.json()["total"], 0);
    answering.abort();
}

#[tokio::test]
async fn be_092_be_093_long_names_and_control_characters_are_refused() {
    let world = World::with(|settings| settings.result_timeout = Some(ANSWER_TIMEOUT)).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let long = "n".repeat(256);
    let agent = "bob@acme.beam.directory";
    for (name, to, nonce) in [
        ("nonce", agent, "a\u{0}b"),
        ("nonce", agent, "a\nb"),
        ("nonce", agent, long.as_str()),
        ("to", "b\u{0}b@acme.beam.directory", "n-1"),
        ("to", long.as_str(), "n-1"),
    ] {
        let payload = json!({"message": "hello"});
        let frame = alice.frame(&world, to, "conversation.message", &payload, nonce);
        let text = format!("{name} has more than 255 bytes or a control character");
        refused(&world.post("/intents/send", &frame).await, &text);
        // Results with such a nonce belong to no intent.
        socket.send(&bob.result(nonce, &json!({}))).await;
    }
    assert_eq!(world.get("/intents/recent").await.json()["total"], 0);
    socket.send_text("{".to_owned()).await;
    assert_eq!(socket.next_json().await.unwrap()["type"], "error");
    // The longest nonce is accepted.
    let frame = alice.message(&world, &bob, &long[1..]);
    let payload = json!({});
    let answering = socket.answer(&bob, &payload);
    let (answer, _) = tokio::join!(world.post("/intents/send", &frame), answering);
    assert_eq!(answer.status, 200, "{}", answer.text);
}
