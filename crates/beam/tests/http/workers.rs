//! Messages of the bus that workers of the Intent Protocol claim and settle.

use std::time::Duration;

use consign_engine::Operator;
use consign_kernel::ids::SECOND_US;
use serde_json::{Value, json};

use crate::bus::{INTENT, answer_all, bus_world, message};
use crate::world::{Answer, Identity, World};

/// The namespace of the messages to bob.
pub(crate) const BOB: &str = "beam.bob.acme";

impl World {
    /// A tester key with grants for these namespaces.
    pub(crate) async fn worker(&self, grants: &[&str]) -> String {
        let grants: Vec<String> = grants.iter().map(|&grant| grant.to_owned()).collect();
        let key = self
            .engine
            .create_key(Operator::vouched(), "worker", &grants)
            .await;
        key.unwrap().secret
    }

    pub(crate) async fn as_worker(&self, key: &str, path: &str, body: &Value) -> Answer {
        let headers = [("x-api-key", key)];
        self.request("POST", path, &headers, Some(body.to_string()))
            .await
    }

    pub(crate) async fn claim(&self, key: &str, query: &str) -> Answer {
        self.as_worker(key, &format!("/claim?{query}"), &json!({}))
            .await
    }

    /// Claims one message that waits for bob.
    pub(crate) async fn claim_of_bob(&self, key: &str) -> Value {
        let claimed = self.claim(key, &format!("namespace={BOB}")).await;
        assert_eq!(claimed.status, 200, "{}", claimed.text);
        claimed.json()
    }

    pub(crate) async fn fulfil(&self, key: &str, claimed: &Value, result: &Value) -> Answer {
        let path = format!("/fulfill/{}", claimed["id"].as_str().unwrap());
        let mut body = result.clone();
        body["claim_token"] = claimed["claim_token"].clone();
        self.as_worker(key, &path, &body).await
    }

    async fn fail(&self, key: &str, claimed: &Value, error: &str) -> Answer {
        let path = format!("/fail/{}", claimed["id"].as_str().unwrap());
        let body = json!({"claim_token": claimed["claim_token"], "error": error});
        self.as_worker(key, &path, &body).await
    }

    async fn ack(&self, id: &Value, status: &str) -> Answer {
        let body = json!({"message_id": id, "status": status});
        self.post("/v1/beam/ack", &body).await
    }

    async fn polled(&self, agent: &str) -> Vec<Value> {
        let path = format!("/v1/beam/poll?agent={agent}");
        let polled = self.get(&path).await.json();
        polled["messages"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn be_171_be_172_a_worker_claims_a_message_and_its_result_is_the_response() {
    let (world, alice, bob) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    let mut body = message("n-1");
    body["trace_id"] = json!("t-1");
    body["priority"] = json!(7);
    let sent = world.send(&body).await;
    assert_eq!(sent.status, 201, "{}", sent.text);
    let sent = sent.json();
    assert_eq!(sent["status"], "delivered", "its workers have it: {sent}");
    let id = &sent["message_id"];
    assert_eq!(world.polled(&bob.beam_id).await[0]["id"], *id);

    let claimed = world.claim_of_bob(&key).await;
    assert_eq!(
        claimed,
        json!({
            "id": id, "claim_token": claimed["claim_token"], "claim_attempts": 1, "claim_timeout": 60,
            "goal": INTENT, "namespace": BOB, "priority": 7,
            "target_worker": null, "required_capability": null,
            "source": {
                "protocol": "beam", "sender": alice.beam_id, "recipient": bob.beam_id,
                "nonce": "n-1", "trace_id": "t-1",
            },
            "payload": {"message": "hello"},
        })
    );
    assert!(claimed["claim_token"].is_string());
    // No other consumer gets it now.
    let empty = world.claim(&key, &format!("namespace={BOB}")).await;
    assert_eq!(empty.status, 204);
    assert!(world.polled(&bob.beam_id).await.is_empty());
    assert_eq!(world.beam.retry_due_messages().await.unwrap(), 0);
    for status in ["acked", "failed"] {
        let refused = world.ack(id, status).await.error();
        assert_eq!(refused, (409, "INVALID_STATE".to_owned()));
    }
    let id = id.as_str().unwrap();
    assert_eq!(world.stored(id).await["status"], "dispatched");

    let path = format!("/extend_claim/{id}");
    let extend = json!({"claim_token": claimed["claim_token"], "seconds": 120});
    let extended = world.as_worker(&key, &path, &extend).await;
    assert_eq!(extended.status, 200, "{}", extended.text);
    let fulfilled = world
        .fulfil(&key, &claimed, &json!({"result": {"done": [1, 2]}}))
        .await;
    assert_eq!(fulfilled.status, 200, "{}", fulfilled.text);
    let stored = world.stored(id).await;
    assert_eq!(stored["status"], "acked", "{stored}");
    assert_eq!(stored["response"], json!({"done": [1, 2]}));
    assert!(stored["acked_at"].is_f64() && stored["error"].is_null());
    assert_eq!(stored["delivered_at"], stored["acked_at"]);
    assert_eq!(
        world.walk(id).await,
        [
            "received",
            "dispatched",
            "delivered",
            "queued",
            "dispatched",
            "dispatched",
            "delivered",
            "acked",
        ]
    );
    // A late acknowledgement is a repetition, and changes nothing.
    assert_eq!(world.ack(&json!(id), "acked").await.status, 200);
    assert_eq!(world.stored(id).await["response"], json!({"done": [1, 2]}));
}

#[tokio::test]
async fn be_172_a_result_that_is_no_object_is_a_member_of_one() {
    let (world, _, _) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    for (number, (result, response)) in [
        (json!({"result": {}}), json!({})),
        (json!({"result": [1, "a"]}), json!({"result": [1, "a"]})),
        (json!({"result": 7}), json!({"result": 7})),
        (
            json!({"result": "a \"word\""}),
            json!({"result": "a \"word\""}),
        ),
        (
            json!({"result": "{\"a\":1}", "result_type": "text"}),
            json!({"result": "{\"a\":1}"}),
        ),
        (json!({}), Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        world.send(&message(&format!("n-{number}"))).await;
        let claimed = world.claim_of_bob(&key).await;
        assert_eq!(world.fulfil(&key, &claimed, &result).await.status, 200);
        let stored = world.stored(claimed["id"].as_str().unwrap()).await;
        assert_eq!(stored["response"], response, "{result}");
    }
}

#[tokio::test]
async fn be_171_a_message_to_an_agent_that_only_its_worker_knows_waits_for_the_worker() {
    let (world, _, _) = bus_world(|_| ()).await;
    let key = world.worker(&["beam.billing"]).await;
    let mut body = message("n-1");
    body["to"] = json!("billing@beam.directory");
    assert_eq!(world.send(&body).await.json()["status"], "delivered");
    let claimed = world.claim(&key, "namespace=beam.billing").await.json();
    assert_eq!(claimed["source"]["recipient"], "billing@beam.directory");
    // Without a grant the answer of the directory counts: the recipient cannot be reached.
    body["to"] = json!("sales@beam.directory");
    body["nonce"] = json!("n-2");
    assert_eq!(world.send(&body).await.json()["status"], "queued");
}

#[tokio::test]
async fn be_171_a_message_that_the_recipient_must_not_get_reaches_no_worker() {
    let (world, alice, _) = bus_world(|_| ()).await;
    let carol = Identity::new("carol@acme.beam.directory", 9);
    world.add_agent(&carol).await;
    let key = world.worker(&["beam.carol.acme"]).await;
    let mut body = message("n-1");
    body["to"] = json!(carol.beam_id);
    // Carol has no rule that allows alice anything.
    let sent = world.send(&body).await.json();
    assert_eq!(
        (&sent["status"], &sent["error_code"]),
        (&json!("dead_letter"), &json!("FORBIDDEN"))
    );
    let claimed = world.claim(&key, "namespace=beam.carol.acme").await;
    assert_eq!(claimed.status, 204);
    world.allow(&carol.beam_id, INTENT, &alice.beam_id).await;
    body["nonce"] = json!("n-2");
    assert_eq!(world.send(&body).await.json()["status"], "delivered");
}

#[tokio::test]
async fn be_171_a_worker_takes_what_a_connected_agent_has_not_acknowledged() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "delivered");
    assert_eq!(frames.recv().await.unwrap()["nonce"], "n-1");
    let claimed = world.claim_of_bob(&key).await;
    assert_eq!(claimed["id"], sent["message_id"]);
    assert_eq!(claimed["claim_attempts"], 2, "the delivery was the first");
    // A failed attempt of the worker is followed by another delivery, which the directory does not repeat to the agent.
    assert_eq!(world.fail(&key, &claimed, "broken").await.status, 200);
    let id = claimed["id"].as_str().unwrap();
    assert_eq!(world.stored(id).await["status"], "queued");
    assert_eq!(world.retry().await, 1);
    assert_eq!(world.stored(id).await["status"], "delivered");
    assert!(frames.try_recv().is_err(), "it was delivered twice");
    assert_eq!(world.ack(&json!(id), "acked").await.status, 200);
    let empty = world.claim(&key, &format!("namespace={BOB}")).await;
    assert_eq!(empty.status, 204);
}

#[tokio::test]
async fn be_173_five_failed_attempts_of_workers_make_a_dead_letter() {
    let (world, _, _) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    let sent = world.send(&message("n-1")).await.json();
    let id = sent["message_id"].as_str().unwrap();
    let next = format!("namespace={BOB}&wait=10");
    for attempt in 1..=5 {
        let claimed = world.claim(&key, &next).await;
        assert_eq!(claimed.status, 200, "{attempt}");
        let claimed = claimed.json();
        assert_eq!(claimed["claim_attempts"], attempt);
        let failed = world.fail(&key, &claimed, &format!("no {attempt}")).await;
        assert_eq!(failed.status, 200, "{}", failed.text);
        let stored = world.stored(id).await;
        let expected = if attempt < 5 { "queued" } else { "dead_letter" };
        assert_eq!(stored["status"], expected, "{stored}");
        assert_eq!(stored["error"], format!("no {attempt}"));
    }
    let dead = world.get("/v1/beam/dead-letter").await.json();
    assert_eq!(dead["messages"][0]["id"], id);
    // An operator gives it a new start, and it waits for its workers again.
    let path = format!("/v1/beam/dead-letter/{id}/requeue");
    let requeued = world.post(&path, &json!({})).await.json();
    assert_eq!(requeued["status"], "delivered", "{requeued}");
    assert_eq!(world.claim_of_bob(&key).await["claim_attempts"], 1);
}

#[tokio::test]
async fn be_173_a_failure_waits_as_long_as_a_failed_delivery() {
    let (world, _, _) = bus_world(|settings| settings.bus.retry_second_us = SECOND_US).await;
    let key = world.worker(&[BOB]).await;
    for (nonce, delay) in [("bus-1", 34.0), ("retry-nonce-1", 28.0)] {
        world.send(&message(nonce)).await;
        let claimed = world.claim_of_bob(&key).await;
        world.fail(&key, &claimed, "no").await;
        let failed_at = world.engine.now().seconds();
        let stored = world.stored(claimed["id"].as_str().unwrap()).await;
        let wait = stored["next_retry_at"].as_f64().unwrap() - failed_at;
        assert!(
            (delay - 3.0..delay + 1.0).contains(&wait),
            "{nonce}: {wait}"
        );
    }
    let empty = world.claim(&key, &format!("namespace={BOB}")).await;
    assert_eq!(empty.status, 204, "none is due");
}

#[tokio::test]
async fn be_171_several_messages_are_claimed_by_goal_in_batches_and_by_waiting() {
    let (world, alice, bob) = bus_world(|_| ()).await;
    world
        .allow(&bob.beam_id, "payment.status_check", &alice.beam_id)
        .await;
    let key = world.worker(&[BOB]).await;
    for number in 0..5 {
        world.send(&message(&format!("n-{number}"))).await;
    }
    let other = world
        .claim(&key, &format!("namespace={BOB}&goal=payment.status_check"))
        .await;
    assert_eq!(other.status, 204);
    let path = format!("namespace={BOB}&goal={INTENT}&max=3");
    let batch = world.claim(&key, &path).await.json();
    let batch = batch["intents"].as_array().unwrap();
    let nonces: Vec<&str> = batch
        .iter()
        .map(|claimed| claimed["source"]["nonce"].as_str().unwrap())
        .collect();
    assert_eq!(nonces, ["n-0", "n-1", "n-2"]);

    // Two ends and the next claim in one request.
    let items: Vec<Value> = [("fulfill", &batch[0]), ("fail", &batch[1])]
        .map(|(action, claimed)| {
            json!({"id": claimed["id"], "claim_token": claimed["claim_token"], "action": action})
        })
        .into();
    let body = json!({"items": items, "claim": {"namespace": BOB, "max": 10}});
    let settled = world.as_worker(&key, "/settle", &body).await.json();
    let oks: Vec<&Value> = settled["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["ok"])
        .collect();
    assert_eq!(oks, [true, true], "{settled}");
    assert_eq!(settled["intents"].as_array().unwrap().len(), 2, "{settled}");
    let status = async |claimed: &Value| {
        let stored = world.stored(claimed["id"].as_str().unwrap()).await;
        stored["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(&batch[0]).await, "acked");
    assert_eq!(status(&batch[1]).await, "queued");

    // The failed one is due soon; a waiting claim wakes for it, and another one for a new message.
    let wait = format!("namespace={BOB}&wait=10");
    let again = world.claim(&key, &wait).await.json();
    assert_eq!(again["source"]["nonce"], "n-1");
    let began = std::time::Instant::now();
    let send = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.send(&message("n-late")).await
    };
    let (claimed, _) = tokio::join!(world.claim(&key, &wait), send);
    assert_eq!(claimed.json()["source"]["nonce"], "n-late");
    assert!(began.elapsed() < Duration::from_secs(4), "no wake");
}
