//! How messages reach connections: leases, acknowledgements, copies, busy peers, members that are away.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{body, message};
use crate::world::{World, session_key};

fn short_lease() -> impl FnOnce(&mut consign_mesh::broker::BrokerSettings) {
    |settings| settings.delivery_lease = Duration::from_secs(2)
}

#[tokio::test]
async fn cm_152_an_unacknowledged_push_is_repeated_and_only_its_recipient_acknowledges() {
    let world = World::with(short_lease(), |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let mut other = world.daemon(&carol).await;
    let ack = sender.deliver(&message(&bob.pubkey(), "hello")).await;
    let first = receiver.push().await;
    other.acknowledge(&first).await;
    sender.acknowledge(&first).await;
    other.settle().await;
    let second = receiver.push().await;
    assert_eq!(second, first);
    let status = json!({"type": "message_status", "messageId": ack["messageId"]});
    let before = sender.request(status.clone()).await;
    assert_eq!(
        (&before["delivered"], &before["deliveredAt"]),
        (&json!(false), &json!(null))
    );

    receiver.acknowledge(&second).await;
    receiver.settle().await;
    let after = sender.request(status.clone()).await;
    assert_eq!(after["type"], "message_status_result");
    assert_eq!(after["delivered"], true);
    assert_eq!(after["targetSpec"], bob.pubkey());
    assert_eq!(after["recipients"][0]["memberId"], bob.id.as_str());
    assert!(after["deliveredAt"].is_string());
    let hidden = other.request(status).await;
    assert_eq!(
        (&hidden["type"], &hidden["code"]),
        (&json!("error"), &json!("not_found"))
    );

    // It is not pushed again: the next push is the next message.
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&receiver.take().await), "marker");
}

#[tokio::test]
async fn cm_152_an_acknowledgement_after_the_lease_counts() {
    let world = World::with(short_lease(), |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    sender.deliver(&message(&bob.pubkey(), "hello")).await;
    let first = receiver.push().await;
    receiver.drop_line();
    // Another connection acknowledges what the first one got.
    let mut again = world.daemon(&bob).await;
    let second = again.push().await;
    assert_eq!(second["messageId"], first["messageId"]);
    again.acknowledge(&first).await;
    again.settle().await;
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&again.take().await), "marker");
}

#[tokio::test]
async fn cm_154_a_message_for_a_member_that_is_away_waits_for_it() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    for text in ["one", "two", "three"] {
        let ack = sender.deliver(&message(&bob.pubkey(), text)).await;
        assert_eq!(ack["code"], 201);
    }
    let unknown = sender.deliver(&message(&"ab".repeat(32), "hello")).await;
    assert_eq!(unknown["code"], 404);
    assert!(unknown["error"].as_str().unwrap().starts_with("not_found"));
    let mut receiver = world.daemon(&bob).await;
    for text in ["one", "two", "three"] {
        assert_eq!(body(&receiver.take().await), text);
    }
}

#[tokio::test]
async fn cm_135_a_connection_of_a_member_that_never_negotiates_gets_mail_until_it_acknowledges() {
    let world = World::with(short_lease(), |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.plain(&alice).await, world.plain(&bob).await);
    sender.deliver(&message(&bob.pubkey(), "hello")).await;
    assert_eq!(body(&receiver.push().await), "hello");
    assert_eq!(body(&receiver.take().await), "hello", "it is no session");
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&receiver.take().await), "marker");
}

#[tokio::test]
async fn cm_153_busy_peers_get_urgent_messages_and_the_others_in_order_later() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    for is_session in [false, true] {
        let mut sender = world.daemon(&alice).await;
        let mut receiver = if is_session {
            world.session(&bob, 60).await
        } else {
            world.daemon(&bob).await
        };
        for status in ["working", "dnd"] {
            receiver
                .send(&json!({"type": "set_status", "status": status}))
                .await;
            receiver.settle().await;
            let target = if is_session {
                session_key(60).public_key().to_string()
            } else {
                bob.pubkey()
            };
            for (text, priority) in [("a", "next"), ("b", "low"), ("c", "now"), ("d", "next")] {
                let mut frame = message(&target, text);
                frame["priority"] = json!(priority);
                sender.deliver(&frame).await;
            }
            let urgent = receiver.take().await;
            assert_eq!(
                (body(&urgent).as_str(), &urgent["priority"]),
                ("c", &json!("now"))
            );
            receiver
                .send(&json!({"type": "set_status", "status": "idle"}))
                .await;
            for text in ["a", "b", "d"] {
                assert_eq!(body(&receiver.take().await), text);
            }
        }
        receiver.drop_line();
    }
}

#[tokio::test]
async fn cm_155_grants_block_direct_messages_with_an_error_and_others_silently() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let mut sender = world.daemon(&alice).await;
    let (mut blocking, mut open) = (world.daemon(&bob).await, world.daemon(&carol).await);
    let set =
        |grants: Value| json!({"type": "set_grants", "member": alice.pubkey(), "grants": grants});
    let listed = blocking.request(set(json!([]))).await;
    assert_eq!(listed["type"], "grants_list");
    assert_eq!(listed["grants"], json!({alice.pubkey(): []}));
    // Its own connection lists the same, and another member has lists of its own.
    let list = json!({"type": "list_grants"});
    assert_eq!(
        blocking.request(list.clone()).await["grants"],
        listed["grants"]
    );
    assert_eq!(open.request(list).await["grants"], json!({}));
    let refused = sender.deliver(&message(&bob.pubkey(), "direct")).await;
    assert_eq!(
        (&refused["code"], &refused["queued"]),
        (&json!(403), &json!(false))
    );
    for target in ["*", "#general"] {
        let ack = sender.deliver(&message(target, "to many")).await;
        assert_eq!(ack["code"], 201);
        assert_eq!(body(&open.take().await), "to many");
    }
    open.deliver(&message(&bob.pubkey(), "from carol")).await;
    assert_eq!(body(&blocking.take().await), "from carol");

    blocking.request(set(json!(["dm"]))).await;
    let ack = sender.deliver(&message(&bob.pubkey(), "direct")).await;
    assert_eq!(ack["code"], 201);
    assert_eq!(body(&blocking.take().await), "direct");
    sender.deliver(&message("*", "to many")).await;
    blocking.settle().await;
    assert!(
        blocking
            .unread("push")
            .iter()
            .all(|push| push["subtype"] == "system")
    );

    let listed = blocking.request(set(Value::Null)).await;
    assert_eq!(listed["grants"], json!({}), "the default");
    sender.deliver(&message("*", "again")).await;
    assert_eq!(body(&blocking.take().await), "again");
    let stranger = json!({"type": "set_grants", "member": "ab".repeat(32), "grants": []});
    assert_eq!(blocking.request(stranger).await["code"], "not_found");
}

#[tokio::test]
async fn a_session_gets_a_copy_of_its_members_mail_and_does_not_take_it() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    sender.deliver(&message(&bob.pubkey(), "waiting")).await;
    let mut passing = world.session(&bob, 60).await;
    assert_eq!(body(&passing.push().await), "waiting");
    sender.deliver(&message(&bob.pubkey(), "later")).await;
    assert_eq!(body(&passing.push().await), "later");
    passing.drop_line();
    let mut daemon = world.daemon(&bob).await;
    assert_eq!(body(&daemon.take().await), "waiting");
    assert_eq!(body(&daemon.take().await), "later");
    daemon.settle().await;

    // With the daemon there, a session still gets what is sent while it is connected, once.
    let mut session = world.session(&bob, 61).await;
    sender.deliver(&message(&bob.pubkey(), "both")).await;
    assert_eq!(body(&daemon.take().await), "both");
    assert_eq!(body(&session.push().await), "both");
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&session.push().await), "marker");
}

#[tokio::test]
async fn a_session_that_acknowledges_settles_its_members_mail() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut session) = (world.daemon(&alice).await, world.session(&bob, 60).await);
    let mut frame = message(&bob.pubkey(), "direct");
    frame["client_message_id"] = json!("c-1");
    sender.deliver(&frame).await;
    session.push().await;
    let ack = json!({"type": "client_ack", "clientMessageId": "c-1"});
    session.send(&ack).await;
    session.settle().await;
    sender.deliver(&message(&bob.pubkey(), "marker")).await;
    let mut daemon = world.daemon(&bob).await;
    assert_eq!(body(&daemon.take().await), "marker");
}

#[tokio::test]
async fn a_message_to_a_session_reaches_it_alone_and_a_written_push_is_its_acknowledgement() {
    let world = World::with(short_lease(), |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    let (mut daemon, mut session) = (world.daemon(&bob).await, world.session(&bob, 60).await);
    let mut frame = message(&session_key(60).public_key().to_string(), "to the session");
    frame["destination_kind"] = json!("dm");
    frame["destination_ref"] = json!(bob.pubkey());
    let ack = sender.deliver(&frame).await;
    assert_eq!(ack["code"], 201, "{ack}");
    assert_eq!(body(&session.push().await), "to the session");
    sender.is_delivered(&ack).await;
    sender
        .deliver(&message(&bob.pubkey(), "to the member"))
        .await;
    assert_eq!(body(&daemon.take().await), "to the member");

    // A session that acknowledges is taken at its word.
    let mut acking = world.session(&bob, 61).await;
    let own = session_key(61).public_key().to_string();
    sender.deliver(&message(&own, "one")).await;
    let one = acking.push().await;
    acking.acknowledge(&one).await;
    acking.settle().await;
    sender.deliver(&message(&own, "two")).await;
    let two = acking.push_of("two").await;
    let again = acking.push_of("two").await;
    assert_eq!(two["messageId"], again["messageId"]);
}

#[tokio::test]
async fn a_direct_message_to_oneself_skips_the_sending_connection_alone() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let (mut daemon, mut session) = (world.daemon(&alice).await, world.session(&alice, 60).await);
    session
        .deliver(&message(&alice.pubkey(), "from the session"))
        .await;
    assert_eq!(body(&daemon.take().await), "from the session");
    daemon
        .deliver(&message(&alice.pubkey(), "from the daemon"))
        .await;
    assert_eq!(body(&session.push().await), "from the daemon");
    session.deliver(&message(&alice.pubkey(), "marker")).await;
    assert_eq!(body(&daemon.take().await), "marker");
}
