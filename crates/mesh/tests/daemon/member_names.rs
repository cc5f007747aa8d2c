//! Names of members that are offline, without a broker and after a restart.

use consign_mesh::frame::MemberEntry;
use serde_json::{Value, json};

use crate::broker_double::BrokerDouble;
use crate::receiving::{clear, until_acked};
use crate::sending::{bob, connected, peer};
use crate::world::{Daemon, Home, NO_BROKER, key};

fn member(name: &str, seed: u8) -> MemberEntry {
    MemberEntry {
        pubkey: key(seed).public_key().to_string(),
        display_name: name.to_owned(),
    }
}

/// The daemon of a home whose broker is gone.
async fn alone(home: &Home) -> Daemon {
    let mut options = home.options();
    options.broker_url = Some(NO_BROKER.to_owned());
    home.up_with(options).await
}

fn error(answer: &Value) -> &Value {
    &answer["error"]
}

#[tokio::test]
async fn cm_054_a_member_that_is_offline_is_addressed_by_its_name_and_key() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.peers.members = Some(vec![member("Bob", 2)]));
    for (id, to) in [("c-1", "bob"), ("c-2", &bob()[..20])] {
        let accepted = daemon.send(id, to, "hi").await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        daemon.until_status(id, "done").await;
    }
    let sent = broker.of_type("send");
    assert!(sent.iter().all(|frame| frame["destination_ref"] == bob()));
    // The broker says that nobody has this name.
    let unknown = daemon.send("c-3", "carol", "hi").await;
    assert_eq!(
        (unknown.status, unknown.json()),
        (404, json!({"error": "destination_not_found"}))
    );
    daemon.down().await;
}

#[tokio::test]
async fn names_are_known_without_a_broker_and_after_a_restart() {
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| {
        behaviour.peers.members = Some(vec![member("Bob", 2)]);
        behaviour.peers.has_more = true;
    });
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    // One is listed by the broker, one is connected, and one has written.
    broker.push(clear("c-0", 4, "hello"));
    until_acked(&broker, 1).await;
    broker.change(|behaviour| behaviour.peers.peers = vec![peer("dora", 5)]);
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
    daemon.down().await;
    let daemon = alone(&home).await;
    for (id, to) in [("c-1", "bob"), ("c-2", "member-4"), ("c-3", "Dora")] {
        let accepted = daemon.send(id, to, "hi").await;
        assert_eq!(accepted.status, 202, "{to}: {}", accepted.text);
    }
    let unknown = daemon.send("c-4", "carol", "hi").await;
    assert_eq!(unknown.status, 503, "{}", unknown.text);
    assert_eq!(error(&unknown.json()), "broker_unreachable");
    let message = unknown.json()["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("repeat")));
    let topic = daemon.send("c-5", "#unknown", "hi").await;
    assert_eq!(error(&topic.json()), "broker_unreachable");
    assert_eq!(daemon.row("c-4").await, Value::Null, "the id is free");
    daemon.down().await;
}

#[tokio::test]
async fn a_repeated_request_by_name_has_its_answer_after_the_member_is_gone() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.peers.members = Some(vec![member("Bob", 2)]));
    assert_eq!(daemon.send("c-1", "bob", "hi").await.status, 202);
    daemon.until_status("c-1", "done").await;
    broker.change(|behaviour| behaviour.peers.members = Some(Vec::new()));
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
    let again = daemon.send("c-1", "Bob", "hi").await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(daemon.send("c-1", "bob", "other").await.status, 409);
    assert_eq!(daemon.send("c-1", "carol", "hi").await.status, 404);
    assert_eq!(daemon.send("c-2", "bob", "hi").await.status, 404);
    daemon.down().await;
}

#[tokio::test]
async fn a_member_with_a_new_key_keeps_its_name_to_itself() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.peers.peers = vec![peer("Bob", 3)]);
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
    broker.change(|behaviour| {
        behaviour.peers.peers = vec![peer("Bob", 2)];
        behaviour.peers.members = Some(vec![member("Bob", 2)]);
    });
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
    assert_eq!(daemon.send("c-1", "bob", "hi").await.status, 202);
    daemon.until_status("c-1", "done").await;
    assert_eq!(broker.of_type("send")[0]["destination_ref"], bob());
    daemon.down().await;
}
