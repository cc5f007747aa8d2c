//! Posts to groups and to all, and named queues.

use serde_json::json;

use crate::client::{body, hello, message};
use crate::world::{World, session_key};

#[tokio::test]
async fn cm_156_groups_and_broadcasts_skip_the_sender_and_reach_nested_groups() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let mut sender = world.daemon(&alice).await;
    let mut sibling = world.session(&alice, 60).await;
    let mut nested = world.daemon(&bob).await;
    nested
        .send(&json!({"type": "join_group", "name": "ops/night"}))
        .await;
    nested.settle().await;
    let mut outside = world.daemon(&carol).await;
    for client in [&mut sender, &mut sibling] {
        client
            .send(&json!({"type": "join_group", "name": "ops"}))
            .await;
        client.settle().await;
    }
    for target in ["@ops", "@ops/night"] {
        assert_eq!(sender.deliver(&message(target, target)).await["code"], 201);
        assert_eq!(body(&nested.take().await), target);
    }
    // A member of the group above does not get what is for the nested one.
    outside
        .deliver(&message("@ops/night", "for the night"))
        .await;
    assert_eq!(body(&nested.take().await), "for the night");
    outside.deliver(&message("@ops", "for all of ops")).await;
    for client in [&mut sender, &mut sibling, &mut nested] {
        assert_eq!(body(&client.take().await), "for all of ops");
    }
    for target in ["*", "@all"] {
        sender.deliver(&message(target, target)).await;
        assert_eq!(body(&nested.take().await), target);
        assert_eq!(body(&outside.take().await), target);
    }
    nested
        .send(&json!({"type": "leave_group", "name": "ops/night"}))
        .await;
    nested.settle().await;
    let empty = sender.deliver(&message("@ops/night", "nobody")).await;
    assert_eq!(empty["code"], 201, "a group without members is accepted");
    outside.deliver(&message(&alice.pubkey(), "marker")).await;
    assert_eq!(body(&sender.take().await), "marker");
    outside.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&nested.take().await), "marker");
}

#[tokio::test]
async fn a_written_post_is_acknowledged_by_a_session_unless_a_daemon_gets_it() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    let mut session = world.session(&bob, 60).await;
    let status = |id: &serde_json::Value| json!({"type": "message_status", "messageId": id});
    let ack = sender.deliver(&message("*", "to all")).await;
    assert_eq!(body(&session.push().await), "to all");
    sender.is_delivered(&ack).await;
    // The daemon that comes later has nothing left to get.
    let mut daemon = world.daemon(&bob).await;
    let ack = sender.deliver(&message("*", "to both")).await;
    assert_eq!(body(&daemon.push().await), "to both");
    assert_eq!(body(&session.push().await), "to both");
    session.settle().await;
    let open = sender.request(status(&ack["messageId"])).await;
    assert_eq!(open["delivered"], false, "the daemon has not acknowledged");
}

#[tokio::test]
async fn a_session_in_a_group_gets_its_posts_and_its_member_does_not() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut daemon) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let mut frame = hello(&bob, Some(&session_key(60)));
    frame["groups"] = json!([{"name": "review", "role": "reader"}]);
    let mut session = world.connect().await;
    session.say_hello(&frame).await;
    sender.deliver(&message("@review", "please")).await;
    assert_eq!(body(&session.push().await), "please");
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&daemon.take().await), "marker");
}

#[tokio::test]
async fn a_named_queue_keeps_its_items_for_workers() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut other) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let ack = sender.deliver(&message("queue:builds", "build it")).await;
    assert_eq!(ack["code"], 201);
    sender.deliver(&message("*", "marker")).await;
    assert_eq!(
        body(&other.take().await),
        "marker",
        "it is pushed to nobody"
    );
    let rows = world
        .ledger
        .sql("SELECT namespace FROM intents WHERE profile = 9");
    assert_eq!(rows, ["mesh.builds"]);
}
