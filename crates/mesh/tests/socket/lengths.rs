//! How long messages and answers may be: what is accepted can be read by those that get it.

use consign_mesh::frame::BrokerFrame;
use consign_mesh::limits::FRAME_BYTES_MAX;
use serde_json::{Value, json};

use crate::client::message;
use crate::world::World;

/// A message with so many more bytes in its push.
fn padded(target: &str, padding: usize) -> Value {
    let mut frame = message(target, &"x".repeat(30_000));
    frame["meta"] = json!({"m": "y".repeat(padding)});
    frame
}

#[tokio::test]
async fn the_longest_push_is_delivered_and_a_longer_one_is_413_before_any_row() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    receiver
        .send(&json!({"type": "join_group", "name": "ops"}))
        .await;
    receiver.settle().await;
    for target in [bob.pubkey(), "#general".to_owned(), "@ops".to_owned()] {
        sender.deliver(&padded(&target, 0)).await;
        let short = receiver.take().await.to_string().len();
        let padding = FRAME_BYTES_MAX - short;
        let rows = "SELECT count(*) FROM intents";
        let before = world.ledger.sql(rows);
        let refused = sender.deliver(&padded(&target, padding + 1)).await;
        assert_eq!(refused["code"], 413, "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.starts_with("payload_too_large"), "{error}");
        assert_eq!(world.ledger.sql(rows), before);
        let accepted = sender.deliver(&padded(&target, padding)).await;
        assert_eq!(accepted["code"], 201, "{accepted}");
        let push = receiver.take().await.to_string();
        assert_eq!(push.len(), FRAME_BYTES_MAX);
        assert!(BrokerFrame::parse(&push).is_ok());
    }
}

#[tokio::test]
async fn an_item_of_a_queue_is_as_long_as_its_message_because_it_is_not_pushed() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut sender = world.daemon(&alice).await;
    let short = padded("queue:builds", 0).to_string().len();
    let longest = padded("queue:builds", FRAME_BYTES_MAX - short);
    assert_eq!(sender.deliver(&longest).await["code"], 201);
}
