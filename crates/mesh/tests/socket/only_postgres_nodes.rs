//! Two nodes on one ledger.

use std::sync::Arc;
use std::time::Duration;

use consign_mesh::broker::MeshSender;
use consign_mesh::frame::SendFrame;
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::rotation::{RotatingMember, rotation_frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, body, hello, message, now_ms};
use crate::world::{Member, World, operator, session_key};

/// No test waits longer for what another node reports.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a peer is listed.
async fn sees(client: &mut Client, pubkey: &str) {
    let has = |list: &Value| {
        let peers = list["peers"].as_array().unwrap();
        peers.iter().any(|peer| peer["pubkey"] == pubkey)
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !has(&client.request(json!({"type": "list_peers"})).await) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the peer is not listed in time"
        );
    }
}

#[tokio::test]
async fn messages_reach_members_and_sessions_of_another_node() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let (alice, bob) = (one.member("alice", 1).await, one.member("bob", 2).await);
    let mut sender = one.daemon(&alice).await;
    let (mut daemon, mut session) = (two.daemon(&bob).await, two.session(&bob, 60).await);
    let key = session_key(60).public_key().to_string();
    sees(&mut sender, &key).await;
    sender.deliver(&message(&bob.pubkey(), "direct")).await;
    assert_eq!(body(&daemon.take().await), "direct");
    assert_eq!(body(&session.push().await), "direct");
    sender.deliver(&message(&key, "to the session")).await;
    assert_eq!(body(&session.push().await), "to the session");
    sender.deliver(&message("#general", "post")).await;
    assert_eq!(body(&daemon.take().await), "post");
}

#[tokio::test]
async fn a_member_that_another_node_revokes_is_closed() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let alice = one.member("alice", 1).await;
    let mut client = two.daemon(&alice).await;
    let key = alice.key.public_key();
    one.broker
        .revoke_member(operator(), "acme", key)
        .await
        .unwrap();
    assert_eq!(client.closed().await, (4002, "banned".to_owned()));
}

/// A message of a member without a connection, as `POST /v1/messages` accepts it.
async fn post(world: &World, member: &Member, target: &str, text: &str) -> Option<u16> {
    let mesh = world.broker.mesh(&member.mesh_id).await.unwrap().unwrap();
    let sender = MeshSender {
        mesh: Arc::new(mesh),
        member_id: member.id.clone(),
        session: None,
        connection: None,
    };
    let send: SendFrame = serde_json::from_value(message(target, text)).unwrap();
    world.broker.accept(&sender, &send).await.code
}

#[tokio::test]
async fn a_node_without_connections_reaches_the_sessions_of_another_one() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let (alice, bob) = (one.member("alice", 1).await, one.member("bob", 2).await);
    let mut session = two.session(&bob, 60).await;
    session
        .send(&json!({"type": "join_group", "name": "ops"}))
        .await;
    session.settle().await;
    let key = session_key(60).public_key().to_string();
    let deadline = Instant::now() + PATIENCE;
    // Until the other node has written its presence.
    while post(&one, &alice, &key, "to the session").await != Some(201) {
        assert!(
            Instant::now() < deadline,
            "the session is not known in time"
        );
    }
    assert_eq!(body(&session.push().await), "to the session");
    assert_eq!(post(&one, &alice, "@ops", "to the group").await, Some(201));
    assert_eq!(body(&session.push().await), "to the group");
    let listed = one.broker.peers(operator(), "acme").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].session, Some(session_key(60).public_key()));
}

#[tokio::test]
async fn operators_see_the_connections_of_nodes_that_are_not_theirs() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let bob = one.member("bob", 2).await;
    let _daemon = two.daemon(&bob).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = one.broker.peers(operator(), "acme").await.unwrap();
        if let [peer] = listed.as_slice() {
            assert_eq!(peer.member_id, bob.id);
            return;
        }
        assert!(Instant::now() < deadline, "{listed:?}");
    }
}

#[tokio::test]
async fn changes_of_members_and_values_reach_the_connections_of_all_nodes_once() {
    let one = World::new().await;
    let two = one.second().await.expect("PostgreSQL has several nodes");
    let (alice, bob) = (one.member("alice", 1).await, one.member("bob", 2).await);
    let carol = one.member("carol", 3).await;
    let mut here = two.daemon(&alice).await;
    let (mut beside, mut away) = (two.daemon(&carol).await, one.daemon(&bob).await);
    sees(&mut away, &alice.pubkey()).await;
    here.send(&json!({"type": "set_profile", "displayName": "alicia"}))
        .await;
    for client in [&mut here, &mut beside, &mut away] {
        let renamed = client.event("member_renamed").await;
        let (old, new) = (
            &renamed["eventData"]["old_name"],
            &renamed["eventData"]["new_name"],
        );
        assert_eq!((old, new), (&json!("alice"), &json!("alicia")));
    }
    here.send(&json!({"type": "set_visible", "visible": false}))
        .await;
    away.event("peer_hidden").await;
    here.send(&json!({"type": "set_visible", "visible": true}))
        .await;
    away.event("peer_visible").await;
    for number in 1..=2 {
        here.send(&json!({"type": "set_state", "key": "deploy", "value": number}))
            .await;
        for client in [&mut beside, &mut away] {
            let change = client.next_of("state_change").await;
            assert_eq!(
                (&change["key"], &change["value"]),
                (&json!("deploy"), &json!(number))
            );
            assert_eq!(change["updatedBy"], alice.pubkey());
        }
    }
    let new = MeshPrivateKey::from_seed(&[11; 32]);
    let rotating = RotatingMember {
        mesh_id: &alice.mesh_id,
        member_id: &alice.id,
        key: alice.key.public_key(),
    };
    let rotation = rotation_frame(&rotating, &alice.key, &new, "k_1", now_ms());
    let mut frame = serde_json::to_value(rotation).unwrap();
    frame["type"] = json!("member_keypair_rotate");
    here.send(&frame).await;
    for client in [&mut here, &mut beside, &mut away] {
        let rotated = client.event("member_keypair_rotated").await;
        let expected = json!({
            "member_id": alice.id,
            "old_pubkey": alice.pubkey(),
            "new_pubkey": new.public_key(),
            "key_id": "k_1",
        });
        assert_eq!(rotated["eventData"], expected);
    }
    // Each of them came once, and what a peer set itself not at all.
    for client in [&here, &beside, &away] {
        let again = client.unread("push");
        let again = again.iter().filter(|push| {
            let event = push["event"].as_str().unwrap_or_default();
            event.starts_with("member_")
        });
        assert_eq!(again.count(), 0);
        assert!(client.unread("state_change").is_empty());
    }
}

/// Connects a session, as soon as the mesh has a place for it at this node.
async fn admitted(world: &World, member: &Member, seed: u8) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = world.connect().await;
        client.send(&hello(member, Some(&session_key(seed)))).await;
        let answer = client.next().await.unwrap();
        if answer["type"] == "hello_ack" {
            return client;
        }
        assert_eq!(answer["code"], "capacity", "{answer}");
        assert!(Instant::now() < deadline, "the node refuses for good");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_node_whose_last_presence_ended_follows_the_others_and_admits_again() {
    // Long enough for this node to see the mesh full before its own presence ends.
    let grace = Duration::from_secs(3);
    let one = World::with(|settings| settings.presence_grace = grace, |_| ()).await;
    let two = one.second_with(|settings| settings.presence_grace = Duration::ZERO);
    let two = two.await.expect("PostgreSQL has several nodes");
    let (alice, bob) = (one.member("alice", 1).await, one.member("bob", 2).await);
    let mut here = one.session(&alice, 60).await;
    let mut others = Vec::new();
    for seed in 100..199 {
        let member = if seed < 150 { &alice } else { &bob };
        others.push(two.session(member, seed).await);
    }
    let last = session_key(198).public_key().to_string();
    sees(&mut here, &last).await;
    here.drop_line();
    others.push(admitted(&two, &alice, 199).await);
    // The presence of this node ends.
    tokio::time::sleep(2 * grace).await;
    drop(others);
    admitted(&one, &bob, 201).await;
}
