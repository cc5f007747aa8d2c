//! How long messages and answers may be: what is accepted can be read by those that get it.

use consign_mesh::broker::{BrokerError, NewTopic};
use consign_mesh::frame::BrokerFrame;
use consign_mesh::id::TopicName;
use consign_mesh::limits::{FRAME_BYTES_MAX, TOPICS_PER_MESH_MAX};
use consign_mesh::role::TopicVisibility;
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

#[tokio::test]
async fn lists_are_as_long_as_a_mesh_is_full_and_daemons_read_them() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sessions = Vec::new();
    for seed in 100..199 {
        let member = if seed < 150 { &alice } else { &bob };
        let mut session = world.session(member, seed).await;
        for frame in [
            json!({"type": "set_summary", "summary": "s".repeat(1_000)}),
            json!({"type": "set_stats", "stats": "x".repeat(4_094)}),
            json!({"type": "set_profile", "bio": "b".repeat(4_000)}),
            json!({"type": "set_state", "key": format!("k-{seed}"), "value": "v".repeat(4_094)}),
        ] {
            session.send(&frame).await;
        }
        session.settle().await;
        sessions.push(session);
    }
    let mut daemon = world.daemon(&alice).await;
    for (request, list, length) in [("list_peers", "peers", 100), ("list_state", "entries", 99)] {
        let answer = daemon.request(json!({"type": request})).await;
        let text = answer.to_string();
        assert!(text.len() > 4 * FRAME_BYTES_MAX, "{}", text.len());
        assert!(BrokerFrame::parse(&text).is_ok());
        assert_eq!(answer[list].as_array().unwrap().len(), length, "{request}");
    }
}

#[tokio::test]
async fn what_a_peer_says_about_itself_and_shares_has_limits() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut client = world.daemon(&alice).await;
    for frame in [
        json!({"type": "set_stats", "stats": "x".repeat(4_095)}),
        json!({"type": "set_profile", "bio": "b".repeat(4_096)}),
        json!({"type": "set_state", "key": "k", "value": "v".repeat(4_095)}),
    ] {
        let answer = client.request(frame).await;
        assert_eq!(answer["code"], "payload_too_large", "{answer}");
    }
    let list = client.request(json!({"type": "list_peers"})).await;
    let own = &list["peers"][0];
    assert_eq!((own.get("stats"), own.get("profile")), (None, None));
    let list = client.request(json!({"type": "list_state"})).await;
    assert_eq!(list["entries"], json!([]));
}

#[tokio::test]
async fn a_connection_has_64_groups_and_their_roles_are_short() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut daemon = world.daemon(&alice).await;
    let join = |number: usize| json!({"type": "join_group", "name": format!("g-{number}"), "role": "r".repeat(300)});
    for number in 0..64 {
        daemon.send(&join(number)).await;
    }
    let refused = daemon.request(join(64)).await;
    assert_eq!(refused["code"], "too_many_groups", "{refused}");
    let mut changed = join(7);
    changed["role"] = json!("lead");
    daemon.send(&changed).await;
    let list = daemon.request(json!({"type": "list_peers"})).await;
    let groups = list["peers"][0]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 64);
    assert_eq!(groups[0]["role"].as_str().unwrap().len(), 256);
    assert_eq!(groups[7], json!({"name": "g-7", "role": "lead"}));
    // The member has the same groups.
    daemon.drop_line();
    let mut again = world.connect().await;
    let ack = again.say_hello(&crate::client::hello(&alice, None)).await;
    assert_eq!(ack["memberProfile"]["groups"], json!(groups));
}

#[tokio::test]
async fn a_mesh_has_a_thousand_topics() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let new = |number: usize| NewTopic {
        name: TopicName::parse(&format!("t-{number}")).unwrap(),
        description: None,
        visibility: TopicVisibility::Public,
    };
    // One is there from the start.
    for number in 1..TOPICS_PER_MESH_MAX {
        let created = world
            .broker
            .create_topic(&world.mesh_id, &alice.id, new(number));
        assert!(created.await.unwrap().1);
    }
    let mut client = world.daemon(&alice).await;
    let known = client
        .request(json!({"type": "topic_create", "name": "t-1"}))
        .await;
    assert_eq!(known["created"], false);
    let refused = client
        .request(json!({"type": "topic_create", "name": "one-more"}))
        .await;
    assert_eq!(refused["code"], "topics_full", "{refused}");
    let created = world.broker.create_topic(&world.mesh_id, &alice.id, new(0));
    assert!(matches!(created.await, Err(BrokerError::TopicsFull)));
}

#[tokio::test]
async fn a_member_has_a_bucket_of_requests_for_all_of_its_connections() {
    let few = |settings: &mut consign_mesh::broker::BrokerSettings| {
        settings.requests_per_minute = 1;
        settings.request_burst = 5;
    };
    let world = World::with(few, |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut one, mut two) = (
        world.session(&alice, 60).await,
        world.session(&alice, 61).await,
    );
    for _ in 0..2 {
        for client in [&mut one, &mut two] {
            let list = client.request(json!({"type": "list_peers"})).await;
            assert_eq!(list["type"], "peers_list");
        }
    }
    one.request(json!({"type": "topic_list"})).await;
    for client in [&mut one, &mut two] {
        let refused = client.request(json!({"type": "list_peers"})).await;
        assert_eq!(refused["code"], "rate_limit", "{refused}");
    }
    // Messages have a bucket of their own, and so have other members.
    let mut other = world.plain(&bob).await;
    assert_eq!(
        one.deliver(&message(&bob.pubkey(), "hi")).await["code"],
        201
    );
    let push = other.take().await;
    let list = other.request(json!({"type": "list_peers"})).await;
    assert_eq!(list["type"], "peers_list");
    let status = json!({"type": "message_status", "messageId": push["messageId"]});
    assert_eq!(other.request(status).await["delivered"], true);
}
