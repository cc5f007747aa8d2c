//! A key that changes while messages are accepted, wait or are sent again.

use std::sync::Arc;

use consign_mesh::body::CarriedBody;
use consign_mesh::frame::{BrokerFrame, PeersList};
use consign_mesh::keys::MeshPublicKey;
use serde_json::{Value, json};

use crate::broker_double::{BrokerDouble, accepted, refused};
use crate::sending::{bob, connected, peer};
use crate::world::{Daemon, key};

/// What bob opens of a sent message, if it is sealed by this key.
fn opened(frame: &Value, sender: &str) -> Option<String> {
    let text = |name: &str| frame[name].as_str().unwrap().to_owned();
    let carried = CarriedBody {
        nonce: text("nonce"),
        ciphertext: text("ciphertext"),
    };
    let sender = MeshPublicKey::parse(sender).unwrap();
    let opened = carried.open_direct(sender, &[&key(2).to_x25519()]);
    opened.map(|(_, body)| String::from_utf8(body.to_vec()).unwrap())
}

fn own() -> String {
    key(1).public_key().to_string()
}

fn sent(broker: &BrokerDouble, id: &str) -> Value {
    let sent = broker.of_type("send").into_iter();
    let mut of_id = sent.filter(|frame| frame["client_message_id"] == id);
    of_id.next_back().unwrap()
}

/// Bob is known, so that no request asks the broker who he is.
async fn knows_bob(broker: &BrokerDouble, daemon: &Daemon) {
    let is_asked = |broker: &BrokerDouble| !broker.of_type("list_peers").is_empty();
    broker.until("it asks for the members", is_asked).await;
    broker.change(|behaviour| behaviour.peers.peers = vec![peer("Bob", 2)]);
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
}

#[tokio::test]
async fn cm_122_a_message_that_comes_during_a_rotation_is_sealed_with_the_new_key() {
    let (_home, broker, daemon) = connected().await;
    knows_bob(&broker, &daemon).await;
    broker.change(|behaviour| behaviour.silent = vec!["list_peers"]);
    let asked = broker.of_type("list_peers").len();
    let nothing = json!({});
    let rotating = daemon.post("/v1/keypair/rotate", &nothing);
    let meanwhile = async {
        let is_asked = |broker: &BrokerDouble| broker.of_type("list_peers").len() > asked;
        broker.until("the rotation waits", is_asked).await;
        let to = bob();
        let sending = daemon.send("c-1", &to, "hi");
        let answering = async {
            // Long enough for an accept that does not wait.
            for _ in 0..50 {
                assert_eq!(daemon.get("/v1/compat").await.status, 200);
            }
            assert_eq!(daemon.row("c-1").await, Value::Null);
            broker.change(|behaviour| behaviour.silent = Vec::new());
            let question = broker.of_type("list_peers").pop().unwrap();
            let answer = BrokerFrame::from(PeersList::default());
            broker.raw(answer.to_text(question["_reqId"].as_str()));
        };
        tokio::join!(sending, answering).0
    };
    let (rotated, accepted) = tokio::join!(rotating, meanwhile);
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let new = rotated.json()["new_pubkey"].as_str().unwrap().to_owned();
    daemon.until_status("c-1", "done").await;
    let frame = sent(&broker, "c-1");
    assert_eq!(opened(&frame, &new).as_deref(), Some("hi"));
    // It went out over the connection of the new key.
    let received = broker.received();
    let at = |kind: &str| received.iter().rposition(|frame| frame["type"] == kind);
    assert!(at("hello") < at("send"));
    daemon.down().await;
}

#[tokio::test]
async fn cm_122_a_message_that_waited_for_the_outcome_of_a_rotation_is_sealed_again() {
    let (home, broker, daemon) = connected().await;
    knows_bob(&broker, &daemon).await;
    broker.change(|behaviour| {
        behaviour.silent = vec!["list_peers"];
        behaviour.close_hello = Some((1001, "later".to_owned()));
    });
    let asked = broker.of_type("list_peers").len();
    let breaking = async {
        let is_asked = |broker: &BrokerDouble| broker.of_type("list_peers").len() > asked;
        broker.until("the rotation waits", is_asked).await;
        broker.close(1001, "shutting down");
    };
    let nothing = json!({});
    let rotating = daemon.post("/v1/keypair/rotate", &nothing);
    let (rotated, ()) = tokio::join!(rotating, breaking);
    assert_eq!(rotated.status, 504, "{}", rotated.text);
    assert_eq!(daemon.send("c-1", &bob(), "hi").await.status, 202);
    let columns = "SELECT hex(request_fingerprint), nonce FROM outbox";
    let before = home.outbox(columns);
    // The broker has the new key, as the daemon learns now. The first transmission gets no answer.
    broker.change(|behaviour| {
        behaviour.silent = Vec::new();
        behaviour.unauthorized = Some(own());
        behaviour.close_hello = None;
        behaviour.ack = Arc::new(|_| None);
    });
    broker
        .until("sent", |broker| broker.sent_ids().len() == 1)
        .await;
    let first = broker.texts_of("send");
    broker.change(|behaviour| behaviour.ack = Arc::new(|frame| Some(accepted(frame))));
    broker.close(1001, "shutting down");
    daemon.until_status("c-1", "done").await;
    let new = daemon.health().await["member_pubkey"].clone();
    let frame = sent(&broker, "c-1");
    assert_eq!(opened(&frame, new.as_str().unwrap()).as_deref(), Some("hi"));
    assert_eq!(opened(&frame, &own()), None);
    // The row is as it was, and each transmission has the same bytes.
    assert_eq!(home.outbox(columns), before);
    let fingerprint = frame["request_fingerprint"].as_str().unwrap();
    assert_eq!(before[0][0].to_lowercase(), fingerprint);
    let texts = broker.texts_of("send");
    assert_eq!(texts, [first[0].clone(), first[0].clone()]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_122_a_refused_question_about_a_rotation_does_not_discard_the_new_key() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.list_error = Some("rate_limit"));
    let rotated = daemon.post("/v1/keypair/rotate", &json!({})).await;
    assert_eq!(rotated.status, 504, "{}", rotated.text);
    // The broker has the new key, as the daemon learns now.
    broker.change(|behaviour| {
        behaviour.list_error = None;
        behaviour.unauthorized = Some(own());
    });
    broker.close(1001, "shutting down");
    let asked = broker.of_type("member_keypair_rotate");
    let new = asked[0]["new_pubkey"].clone();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while daemon.health().await["member_pubkey"] != new {
        assert!(tokio::time::Instant::now() < deadline, "it knows both keys");
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_079_cm_122_a_row_of_the_old_key_is_sealed_again_when_it_is_requeued() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| Some(refused(frame, 404, "not_found")));
    });
    assert_eq!(daemon.send("old", &bob(), "hi").await.status, 202);
    let row = daemon.until_status("old", "dead").await;
    let rotated = daemon.post("/v1/keypair/rotate", &json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    broker.change(|behaviour| behaviour.ack = Arc::new(|frame| Some(accepted(frame))));
    let body = json!({"id": row["id"], "new_client_message_id": "new"});
    let requeued = daemon.post("/v1/outbox/requeue", &body).await;
    assert_eq!(requeued.status, 200, "{}", requeued.text);
    daemon.until_status("new", "done").await;
    let (old, new) = (sent(&broker, "old"), sent(&broker, "new"));
    let current = rotated.json()["new_pubkey"].clone();
    assert_eq!(opened(&old, &own()).as_deref(), Some("hi"));
    assert_eq!(
        opened(&new, current.as_str().unwrap()).as_deref(),
        Some("hi")
    );
    assert_eq!(old["request_fingerprint"], new["request_fingerprint"]);
    daemon.down().await;
}
