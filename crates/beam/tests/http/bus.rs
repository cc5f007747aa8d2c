//! Messages on the bus: send, acknowledge, requeue.

use std::time::Duration;

use consign_beam::bus::Acknowledgement;
use consign_beam::lifecycle::{TransitionContext, check_transition};
use consign_beam::settings::{BeamSettings, BusIdentity};
use consign_kernel::ids::IntentId;
use consign_kernel::state::State;
use consign_web::secret_text::SecretText;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::{Answer, Identity, TestSocket, World};

pub(crate) const INTENT: &str = "conversation.message";

/// A server whose bus signs for alice, with a retry schedule of milliseconds; its worker runs when a test calls it.
pub(crate) async fn bus_world(
    change: impl FnOnce(&mut BeamSettings),
) -> (World, Identity, Identity) {
    let world = World::with(|settings| {
        bus_settings(settings);
        change(settings);
    })
    .await;
    let (alice, bob) = world.alice_and_bob().await;
    (world, alice, bob)
}

pub(crate) fn bus_settings(settings: &mut BeamSettings) {
    let alice = Identity::alice();
    settings.rate_per_minute = 1_000;
    settings.bus.rate_per_minute = 1_000;
    settings.bus.retry_interval = Duration::from_hours(1);
    settings.bus.retry_second_us = 1_000;
    settings.bus.identities = vec![BusIdentity {
        private_key: SecretText::new(alice.private_key()),
        beam_id: alice.beam_id,
    }];
}

/// The body of a message from alice to bob.
pub(crate) fn message(nonce: &str) -> Value {
    let (alice, bob) = (Identity::alice(), Identity::bob());
    json!({
        "from": alice.beam_id, "to": bob.beam_id, "intent": INTENT,
        "payload": {"message": "hello"}, "nonce": nonce,
    })
}

/// Answers every intent that arrives, and passes the frames on.
pub(crate) fn answer_all(mut socket: TestSocket, bob: Identity) -> mpsc::UnboundedReceiver<Value> {
    let (frames, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = socket.next_json().await {
            let frame = message["frame"].clone();
            let nonce = frame["nonce"].as_str().unwrap().to_owned();
            socket
                .send(&bob.result(&nonce, &json!({"message": "ok"})))
                .await;
            let _ = frames.send(frame);
        }
    });
    received
}

impl World {
    pub(crate) async fn send(&self, body: &Value) -> Answer {
        self.post("/v1/beam/send", body).await
    }

    /// The whole message, from history.
    pub(crate) async fn stored(&self, id: &str) -> Value {
        let history = self.get("/v1/beam/history?limit=500").await.json();
        let messages = history["messages"].as_array().unwrap();
        let found = messages.iter().find(|message| message["id"] == id);
        found.unwrap_or_else(|| panic!("{id}: {history}")).clone()
    }

    /// The states that a message went through, each step a legal one of the bus.
    pub(crate) async fn walk(&self, id: &str) -> Vec<String> {
        let id: IntentId = id.parse().unwrap();
        let row = self.engine.observe(id).await.unwrap().unwrap();
        let facts = self.engine.timeline(row.seq).await.unwrap();
        for fact in &facts {
            check_transition(TransitionContext::Message, fact.from, fact.to).unwrap();
        }
        facts.iter().map(|fact| fact.to.name().to_owned()).collect()
    }
}

fn keys(body: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn be_023_be_047_a_delivered_message_went_through_three_states() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob);
    let sent = world.send(&message("n-1")).await;
    assert_eq!(sent.status, 201, "{}", sent.text);
    let body = sent.json();
    assert_eq!(keys(&body), ["created_at", "message_id", "nonce", "status"]);
    assert_eq!(
        (&body["status"], &body["nonce"]),
        (&json!("delivered"), &json!("n-1"))
    );
    let id = body["message_id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    let created_at = body["created_at"].as_f64().unwrap();
    assert!(
        created_at.fract() != 0.0 && created_at > 1.7e9,
        "{created_at}"
    );
    assert_eq!(
        world.walk(id).await,
        ["received", "dispatched", "delivered"]
    );
    let frame = frames.recv().await.unwrap();
    assert_eq!(frame["nonce"], "n-1");

    let stored = world.stored(id).await;
    assert_eq!(
        keys(&stored),
        [
            "acked_at",
            "created_at",
            "delivered_at",
            "error",
            "failed_at",
            "id",
            "intent",
            "max_retries",
            "metadata",
            "next_retry_at",
            "nonce",
            "payload",
            "priority",
            "recipient",
            "response",
            "retry_count",
            "sender",
            "status",
            "trace_id",
        ]
    );
    let delivered_at = stored["delivered_at"].as_f64().unwrap();
    assert!(delivered_at >= created_at && delivered_at < created_at + 5.0);
    assert_eq!(stored["retry_count"], 0);
    assert_eq!(stored["max_retries"], 5);
    for absent in [
        "acked_at",
        "failed_at",
        "next_retry_at",
        "error",
        "response",
        "trace_id",
        "metadata",
    ] {
        assert!(stored[absent].is_null(), "{absent}: {stored}");
    }
}

#[tokio::test]
async fn be_022_a_wrong_body_is_refused_by_its_first_error() {
    let (world, _, _) = bus_world(|_| ()).await;
    let send = async |body: &str| {
        let body = Some(body.to_owned());
        world
            .request("POST", "/v1/beam/send", &[], body)
            .await
            .error()
    };
    let expected = |code: &str| (400, code.to_owned());
    assert_eq!(send("{").await, expected("INVALID_JSON"));
    assert_eq!(
        send(r#"{"payload":7}"#).await,
        expected("MISSING_REQUIRED_FIELDS")
    );
    let body = r#"{"from":"a","to":"b","intent":"c","payload":[]}"#;
    assert_eq!(send(body).await, expected("INVALID_PAYLOAD"));
    let answer = world.post("/v1/beam/send", &json!({})).await;
    assert_eq!(
        answer.json()["error"],
        "Missing required fields: from, to, intent"
    );
}

#[tokio::test]
async fn be_024_be_025_a_repeated_nonce_is_the_same_message_or_a_conflict() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob);
    let mut body = message("n-1");
    body["payload"] = json!({"message": "hi", "context": {"a": 1, "b": [1, 2]}});
    let first = world.send(&body).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let first = first.json();
    let reordered = body.to_string().replace(
        r#""payload":{"context":{"a":1,"b":[1,2]},"message":"hi"}"#,
        r#""payload":{"message":"hi","context":{"b":[1,2],"a":1}}"#,
    );
    assert_ne!(reordered, body.to_string());
    let again = world
        .request("POST", "/v1/beam/send", &[], Some(reordered))
        .await;
    assert_eq!(again.status, 200);
    let again = again.json();
    assert_eq!(
        keys(&again),
        [
            "created_at",
            "deduped",
            "message_id",
            "nonce",
            "retry_count",
            "status"
        ]
    );
    assert_eq!(again["deduped"], true);
    assert_eq!(again["retry_count"], 0);
    for same in ["message_id", "created_at", "nonce", "status"] {
        assert_eq!(again[same], first[same], "{same}");
    }
    body["payload"]["context"]["b"] = json!([2, 1]);
    let other = world.send(&body).await;
    assert_eq!(other.error(), (409, "NONCE_REUSE_CONFLICT".to_owned()));
    let text = "Nonce n-1 already belongs to a different message";
    assert_eq!(other.json()["error"], text);
    frames.recv().await.unwrap();
    assert!(frames.try_recv().is_err(), "it was delivered once");
}

#[tokio::test]
async fn be_026_a_sender_has_ten_messages_a_minute_and_duplicates_do_not_count() {
    let (world, _, _) = bus_world(|settings| settings.bus.rate_per_minute = 10).await;
    for number in 0..10 {
        let sent = world.send(&message(&format!("n-{number}"))).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        let again = world.send(&message(&format!("n-{number}"))).await;
        assert_eq!(again.status, 200, "{}", again.text);
    }
    let refused = world.send(&message("n-10")).await;
    assert_eq!(refused.error(), (429, "RATE_LIMIT_EXCEEDED".to_owned()));
    let text = "Rate limit exceeded for alice@acme.beam.directory (max 10/min)";
    assert_eq!(refused.json()["error"], text);
    assert_eq!(world.send(&message("n-3")).await.status, 200);
}

#[tokio::test]
async fn concurrent_sends_of_one_nonce_deliver_once() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob);
    let body = message("n-1");
    let answers: [Answer; 4] = tokio::join!(
        world.send(&body),
        world.send(&body),
        world.send(&body),
        world.send(&body),
    )
    .into();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 201).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        3,
        "{statuses:?}"
    );
    let ids: std::collections::BTreeSet<String> = answers
        .iter()
        .map(|answer| answer.json()["message_id"].to_string())
        .collect();
    assert_eq!(ids.len(), 1);
    frames.recv().await.unwrap();
    assert!(frames.try_recv().is_err());
}

#[tokio::test]
async fn a_message_is_delivered_although_its_sender_hangs_up() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut socket = world.connect(&bob.beam_id).await;
    {
        let body = message("n-1");
        let send = world.send(&body);
        let hang_up = tokio::time::timeout(Duration::from_millis(300), send).await;
        assert!(hang_up.is_err(), "the recipient has not answered yet");
    }
    socket.answer(&bob, &json!({"message": "ok"})).await;
    let path = format!("/v1/beam/poll?agent={}&wait=10", bob.beam_id);
    let polled = world.get(&path).await.json();
    assert_eq!(polled["count"], 1, "{polled}");
}

#[tokio::test]
async fn be_036_be_037_be_038_acknowledgements_follow_the_table() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let send = async |nonce: &str| {
        let sent = world.send(&message(nonce)).await.json();
        sent["message_id"].as_str().unwrap().to_owned()
    };
    let ack = async |body: Value| world.post("/v1/beam/ack", &body).await;
    let broken = world
        .request("POST", "/v1/beam/ack", &[], Some("{".to_owned()))
        .await;
    assert_eq!(broken.error(), (400, "INVALID_JSON".to_owned()));
    let missing = ack(json!({})).await;
    assert_eq!(missing.error(), (400, "MISSING_MESSAGE_ID".to_owned()));
    let (first, second, third) = (send("n-1").await, send("n-2").await, send("n-3").await);
    let wrong = ack(json!({"message_id": first, "status": "done"})).await;
    assert_eq!(wrong.error(), (400, "INVALID_STATUS".to_owned()));
    assert_eq!(
        wrong.json()["error"],
        "status must be \"acked\" or \"failed\""
    );
    for unknown in ["x", "00000000000000000000000000000000"] {
        let answer = ack(json!({"message_id": unknown})).await;
        assert_eq!(answer.error(), (404, "MESSAGE_NOT_FOUND".to_owned()));
        assert_eq!(
            answer.json()["error"],
            format!("Message {unknown} not found")
        );
    }

    let acked = ack(json!({"message_id": first, "response": {"done": [1, 2]}})).await;
    assert_eq!(acked.status, 200, "{}", acked.text);
    let acked = acked.json();
    assert_eq!(
        (&acked["message_id"], &acked["status"]),
        (&json!(first), &json!("acked"))
    );
    assert!(acked["updated_at"].is_f64());
    let before = world.stored(&first).await;
    assert_eq!(before["response"], json!({"done": [1, 2]}));
    assert!(
        before["acked_at"].is_f64() && before["delivered_at"].is_f64(),
        "{before}"
    );
    // A repetition changes nothing, with or without a response.
    for body in [
        json!({"message_id": first}),
        json!({"message_id": first, "response": {"x": 1}}),
    ] {
        let again = ack(body).await;
        assert_eq!(again.status, 200);
        assert_eq!(again.json()["updated_at"], before["acked_at"]);
    }
    assert_eq!(world.stored(&first).await, before);
    let late = ack(json!({"message_id": first, "status": "failed"})).await;
    assert_eq!(late.error(), (409, "INVALID_STATE".to_owned()));
    let text = format!("Invalid message {first} lifecycle transition from acked to failed");
    assert_eq!(late.json()["error"], text);

    let failed = json!({"message_id": second, "status": "failed", "response": {"why": "broken"}});
    assert_eq!(ack(failed).await.status, 200);
    let stored = world.stored(&second).await;
    assert_eq!(stored["error"], r#"{"why":"broken"}"#);
    assert!(
        stored["response"].is_null() && stored["failed_at"].is_f64(),
        "{stored}"
    );
    assert!(stored["delivered_at"].is_f64(), "{stored}");
    assert_eq!(
        ack(json!({"message_id": third, "status": "failed"}))
            .await
            .status,
        200
    );
    assert_eq!(world.stored(&third).await["error"], "Manually failed");
    assert_eq!(
        world.walk(&third).await,
        ["received", "dispatched", "delivered", "failed"]
    );
    drop(frames);
}

#[tokio::test(flavor = "multi_thread")]
async fn be_038_be_006_of_acknowledgements_at_the_same_time_one_is_stored() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let _frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    for number in 0..10 {
        let nonce = format!("n-{number}");
        let sent = world.send(&message(&nonce)).await.json();
        let id = sent["message_id"].as_str().unwrap();
        let acks = (0..8).map(|number| {
            let (beam, message_id) = (world.beam.clone(), id.to_owned());
            tokio::spawn(async move {
                let response = Some(number.to_string());
                let is_failure = false;
                let ack = Acknowledgement {
                    message_id,
                    is_failure,
                    response,
                };
                beam.acknowledge(ack).await
            })
        });
        for ack in acks.collect::<Vec<_>>() {
            assert_eq!(ack.await.unwrap().unwrap().state, State::Acked);
        }
        let row = world.engine.observe(id.parse().unwrap()).await.unwrap();
        let facts = world.engine.timeline(row.unwrap().seq).await.unwrap();
        let acked = facts.iter().filter(|fact| fact.to == State::Acked);
        assert_eq!(acked.count(), 1, "{facts:?}");
    }
}

#[tokio::test]
async fn be_036_a_queued_message_can_fail_and_not_be_acked_and_a_dead_one_neither() {
    let (world, _, _) = bus_world(|_| ()).await;
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "queued", "{sent}");
    let id = sent["message_id"].as_str().unwrap();
    let ack = async |id: &str, status: &str| {
        let body = json!({"message_id": id, "status": status});
        world.post("/v1/beam/ack", &body).await
    };
    let early = ack(id, "acked").await;
    assert_eq!(early.error(), (409, "INVALID_STATE".to_owned()));
    let text = format!("Invalid message {id} lifecycle transition from queued to acked");
    assert_eq!(early.json()["error"], text);
    assert_eq!(ack(id, "failed").await.status, 200);
    let stored = world.stored(id).await;
    assert_eq!(
        (&stored["status"], &stored["retry_count"]),
        (&json!("failed"), &json!(1))
    );
    assert!(
        stored["delivered_at"].is_null() && stored["next_retry_at"].is_null(),
        "{stored}"
    );

    let mut denied = message("n-2");
    denied["intent"] = json!("payment.status_check");
    let dead = world.send(&denied).await.json();
    assert_eq!(dead["status"], "dead_letter", "{dead}");
    let id = dead["message_id"].as_str().unwrap();
    for status in ["acked", "failed"] {
        assert_eq!(
            ack(id, status).await.error(),
            (409, "INVALID_STATE".to_owned())
        );
    }
}

#[tokio::test]
async fn be_042_be_044_a_requeue_has_three_answers() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let requeue = async |id: &str| {
        let path = format!("/v1/beam/dead-letter/{id}/requeue");
        world.request("POST", &path, &[], None).await
    };
    let missing = requeue("00000000000000000000000000000000").await;
    assert_eq!(missing.error(), (404, "MESSAGE_NOT_FOUND".to_owned()));
    let sent = world.send(&message("bus-off")).await.json();
    let id = sent["message_id"].as_str().unwrap();
    let refused = requeue(id).await;
    assert_eq!(refused.error(), (409, "INVALID_STATE".to_owned()));
    let text = format!("Message {id} is not in a requeueable state");
    assert_eq!(refused.json()["error"], text);

    // Failed messages may be requeued too. The recipient is still offline.
    let fail = json!({"message_id": id, "status": "failed"});
    assert_eq!(world.post("/v1/beam/ack", &fail).await.status, 200);
    let queued = requeue(id).await;
    assert_eq!(queued.status, 200, "{}", queued.text);
    let queued = queued.json();
    assert_eq!(
        keys(&queued),
        [
            "error",
            "error_code",
            "message_id",
            "next_retry_at",
            "nonce",
            "requeued",
            "retry_count",
            "status",
        ]
    );
    assert_eq!(queued["status"], "queued");
    assert_eq!(
        (&queued["retry_count"], &queued["requeued"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(queued["error_code"], "OFFLINE");
    assert_eq!(queued["nonce"], "bus-off");

    // With the agent back, the same nonce is delivered.
    assert_eq!(world.post("/v1/beam/ack", &fail).await.status, 200);
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob);
    let delivered = requeue(id).await.json();
    assert_eq!(
        delivered,
        json!({"message_id": id, "nonce": "bus-off", "status": "delivered", "requeued": true})
    );
    assert_eq!(frames.recv().await.unwrap()["nonce"], "bus-off");
    let stored = world.stored(id).await;
    assert_eq!(stored["retry_count"], 0);
    assert!(
        stored["error"].is_null() && stored["failed_at"].is_null(),
        "{stored}"
    );
    let walk = world.walk(id).await;
    assert_eq!(walk.last().unwrap(), "delivered", "{walk:?}");
}

#[tokio::test]
async fn be_027_be_043_a_forbidden_message_is_dead_until_the_rule_is_fixed() {
    let (world, alice, bob) = bus_world(|_| ()).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let mut body = message("n-1");
    body["intent"] = json!("payment.status_check");
    body["payload"] = json!({"invoiceNumber": "inv-1"});
    let sent = world.send(&body).await;
    assert_eq!(sent.status, 201, "{}", sent.text);
    let sent = sent.json();
    assert_eq!(
        keys(&sent),
        [
            "created_at",
            "error",
            "error_code",
            "message_id",
            "nonce",
            "status"
        ]
    );
    assert_eq!(
        (&sent["status"], &sent["error_code"]),
        (&json!("dead_letter"), &json!("FORBIDDEN"))
    );
    assert!(
        sent["error"]
            .as_str()
            .unwrap()
            .starts_with("ACL denied intent"),
        "{sent}"
    );
    let id = sent["message_id"].as_str().unwrap();
    let path = format!("/v1/beam/dead-letter/{id}/requeue");
    let again = world.request("POST", &path, &[], None).await.json();
    assert_eq!(again["status"], "dead_letter", "{again}");
    assert_eq!(
        (&again["requeued"], &again["error_code"]),
        (&json!(true), &json!("FORBIDDEN"))
    );
    assert!(again.get("retry_count").is_none(), "{again}");

    world
        .allow(&bob.beam_id, "payment.status_check", &alice.beam_id)
        .await;
    let fixed = world.request("POST", &path, &[], None).await.json();
    assert_eq!(fixed["status"], "delivered", "{fixed}");
    assert_eq!(frames.recv().await.unwrap()["nonce"], "n-1");
    assert_eq!(
        world.walk(id).await,
        [
            "received",
            "dispatched",
            "dead_letter",
            "queued",
            "dispatched",
            "dead_letter",
            "queued",
            "dispatched",
            "delivered",
        ]
    );
}
