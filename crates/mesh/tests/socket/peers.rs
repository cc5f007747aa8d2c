//! Who is connected, what peers say about themselves, shared values, names and keys.

use std::time::Duration;

use consign_mesh::broker::BrokerError;
use consign_mesh::invite::JoinRefusal;
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::rotation::{RotatingMember, rotation_frame};
use serde_json::{Value, json};

use crate::client::{body, hello, message, now_ms};
use crate::world::{Member, World};

fn entry<'a>(list: &'a Value, pubkey: &str) -> Option<&'a Value> {
    let peers = list["peers"].as_array().unwrap();
    peers.iter().find(|peer| peer["pubkey"] == pubkey)
}

#[tokio::test]
async fn cm_157_the_list_of_peers_has_its_shape() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut daemon = world.connect().await;
    let mut frame = hello(&alice, None);
    for (name, value) in [
        ("cwd", "/srv"),
        ("hostname", "box"),
        ("peerType", "connector"),
        ("channel", "daemon"),
        ("model", "m-1"),
    ] {
        frame[name] = json!(value);
    }
    daemon.say_hello(&frame).await;
    let before = daemon.request(json!({"type": "list_peers"})).await;
    let own = entry(&before, &alice.pubkey()).unwrap();
    assert_eq!(own["peerRole"], "control-plane");
    daemon.negotiate().await;
    for set in [
        json!({"type": "set_status", "status": "working"}),
        json!({"type": "set_summary", "summary": "reads mail"}),
        json!({"type": "set_profile", "title": "postman"}),
        json!({"type": "set_stats", "stats": {"messages": 3}}),
        json!({"type": "join_group", "name": "ops", "role": "lead"}),
    ] {
        daemon.send(&set).await;
    }
    daemon.settle().await;
    let mut session = world.session(&bob, 60).await;
    let list = session.request(json!({"type": "list_peers"})).await;
    assert_eq!(list["type"], "peers_list");
    let peer = entry(&list, &alice.pubkey()).unwrap();
    let expected = json!({
        "pubkey": alice.pubkey(),
        "memberPubkey": alice.pubkey(),
        "displayName": "alice",
        "status": "working",
        "summary": "reads mail",
        "groups": [{"name": "ops", "role": "lead"}],
        "sessionId": frame["sessionId"],
        "connectedAt": peer["connectedAt"],
        "cwd": "/srv",
        "peerRole": "service",
        "hostname": "box",
        "peerType": "connector",
        "channel": "daemon",
        "model": "m-1",
        "stats": {"messages": 3},
        "visible": true,
        "profile": {"title": "postman"},
    });
    assert_eq!(*peer, expected);
    let own = entry(
        &list,
        &crate::world::session_key(60).public_key().to_string(),
    )
    .unwrap();
    assert_eq!(
        (&own["peerRole"], &own["memberPubkey"]),
        (&json!("session"), &json!(bob.pubkey()))
    );

    daemon
        .send(&json!({"type": "set_visible", "visible": false}))
        .await;
    session.event("peer_hidden").await;
    let list = session.request(json!({"type": "list_peers"})).await;
    assert_eq!(entry(&list, &alice.pubkey()), None);
    daemon
        .send(&json!({"type": "set_visible", "visible": true}))
        .await;
    session.event("peer_visible").await;
}

#[tokio::test]
async fn members_are_listed_while_they_are_offline_and_those_that_hide_are_not() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let mut daemon = world.daemon(&alice).await;
    let members = |list: &Value| {
        let members = list["members"].as_array().unwrap().iter();
        let mut found: Vec<(String, String)> = members
            .map(|member| {
                let text = |key: &str| member[key].as_str().unwrap().to_owned();
                (text("displayName"), text("pubkey"))
            })
            .collect();
        found.sort();
        found
    };
    let named = |name: &str, member: &Member| (name.to_owned(), member.pubkey());
    let all = json!({"type": "list_peers", "members": true});
    let list = daemon.request(all.clone()).await;
    let expected = [
        named("alice", &alice),
        named("bob", &bob),
        named("carol", &carol),
    ];
    assert_eq!(members(&list), expected);
    assert_eq!(list["peers"].as_array().map(Vec::len), Some(1));
    for asked in ["BOB".to_owned(), bob.pubkey()[..12].to_owned()] {
        let one = json!({"type": "list_peers", "members": true, "member": asked});
        assert_eq!(members(&daemon.request(one).await), [named("bob", &bob)]);
    }
    // Nobody has asked for them here.
    let list = daemon.request(json!({"type": "list_peers"})).await;
    assert_eq!(list["members"], Value::Null);
    // Hiding lasts while the member is away, and when it returns.
    let mut hidden = world.daemon(&bob).await;
    hidden
        .send(&json!({"type": "set_visible", "visible": false}))
        .await;
    hidden.settle().await;
    let expected = [named("alice", &alice), named("carol", &carol)];
    assert_eq!(members(&daemon.request(all.clone()).await), expected);
    hidden.drop_line();
    assert_eq!(members(&daemon.request(all.clone()).await), expected);
    let list = hidden_again(&world, &bob, &all).await;
    assert_eq!(members(&list).len(), 3, "it sees itself");
    let list = daemon.request(all).await;
    assert_eq!(members(&list), expected);
    assert_eq!(entry(&list, &bob.pubkey()), None);
}

async fn hidden_again(world: &World, member: &Member, ask: &Value) -> Value {
    let mut daemon = world.daemon(member).await;
    daemon.request(ask.clone()).await
}

#[tokio::test]
async fn cm_150_a_reconnect_within_the_grace_time_is_silent_and_its_end_is_reported() {
    let grace = Duration::from_millis(1_500);
    let world = World::with(|settings| settings.presence_grace = grace, |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.daemon(&bob).await;
    let mut daemon = world.daemon(&alice).await;
    daemon
        .send(&json!({"type": "set_summary", "summary": "busy"}))
        .await;
    daemon.settle().await;
    watching.event("peer_joined").await;
    daemon.drop_line();
    let mut again = world.connect().await;
    let ack = again.say_hello(&hello(&alice, None)).await;
    assert_eq!(
        (&ack["restored"], &ack["lastSummary"]),
        (&json!(true), &json!("busy"))
    );
    again.negotiate().await;
    watching.settle().await;
    assert!(watching.unread("push").is_empty());
    again.drop_line();
    let list = watching.request(json!({"type": "list_peers"})).await;
    assert!(
        entry(&list, &alice.pubkey()).is_some(),
        "it is still present"
    );
    let left = watching.event("peer_left").await;
    assert_eq!(left["eventData"]["memberId"], alice.id.as_str());
    let list = watching.request(json!({"type": "list_peers"})).await;
    assert_eq!(entry(&list, &alice.pubkey()), None);
}

#[tokio::test]
async fn cm_150_a_broker_waits_90_seconds_for_a_client_and_30_for_an_acknowledgement() {
    let settings = consign_mesh::broker::BrokerSettings::new(String::new());
    assert_eq!(settings.presence_grace, Duration::from_secs(90));
    assert_eq!(settings.delivery_lease, Duration::from_secs(30));
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.daemon(&bob).await;
    let daemon = world.daemon(&alice).await;
    watching.event("peer_joined").await;
    daemon.drop_line();
    // The connection is gone, and the presence is not.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while world.metric("broker_connections_active").await != 1 {
        assert!(tokio::time::Instant::now() < deadline, "it is gone");
    }
    let list = watching.request(json!({"type": "list_peers"})).await;
    assert!(entry(&list, &alice.pubkey()).is_some());
    assert!(watching.unread("push").is_empty());
}

#[tokio::test]
async fn cm_159_values_are_shared_and_changes_reported() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut one, mut other) = (world.session(&alice, 60).await, world.daemon(&bob).await);
    let unset = one
        .request(json!({"type": "get_state", "key": "deploy"}))
        .await;
    assert_eq!(
        (&unset["type"], &unset["value"]),
        (&json!("state_result"), &json!(null))
    );
    let value = json!({"version": 3, "by": ["a", 1.5]});
    one.send(&json!({"type": "set_state", "key": "deploy", "value": value}))
        .await;
    let change = other.next_of("state_change").await;
    assert_eq!(
        (&change["key"], &change["value"]),
        (&json!("deploy"), &value)
    );
    assert_eq!(change["updatedBy"], alice.pubkey());
    let got = other
        .request(json!({"type": "get_state", "key": "deploy"}))
        .await;
    assert_eq!(
        (&got["value"], &got["updatedBy"]),
        (&value, &json!(alice.pubkey()))
    );
    assert!(got["updatedAt"].as_str().unwrap().ends_with('Z'));
    one.send(&json!({"type": "set_state", "key": "a", "value": null}))
        .await;
    let list = one.request(json!({"type": "list_state"})).await;
    assert_eq!(list["type"], "state_list");
    let keys: Vec<_> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["key"])
        .collect();
    assert_eq!(keys, ["a", "deploy"]);
    assert!(one.unread("state_change").is_empty(), "not of its own");
}

#[tokio::test]
async fn a_member_changes_its_name_on_request_alone() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.daemon(&bob).await;
    let mut client = world.connect().await;
    let mut frame = hello(&alice, None);
    frame["displayName"] = json!("impostor");
    let ack = client.say_hello(&frame).await;
    assert_eq!(ack["memberDisplayName"], "alice");
    client
        .send(&json!({"type": "set_profile", "displayName": "alicia"}))
        .await;
    let renamed = watching.event("member_renamed").await;
    assert_eq!(renamed["eventData"]["old_name"], "alice");
    assert_eq!(renamed["eventData"]["new_name"], "alicia");
    client.deliver(&message(&bob.pubkey(), "hello")).await;
    assert_eq!(watching.take().await["senderName"], "alicia");
}

#[tokio::test]
async fn a_rotated_key_is_the_same_member_and_its_former_key_still_names_it() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut daemon, mut watching) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let (new, alice_key) = (MeshPrivateKey::from_seed(&[11; 32]), alice.pubkey());
    let rotating = RotatingMember {
        mesh_id: &alice.mesh_id,
        member_id: &alice.id,
        key: alice.key.public_key(),
    };
    let rotation = rotation_frame(&rotating, &alice.key, &new, "k_1", now_ms());
    let mut frame = serde_json::to_value(rotation).unwrap();
    frame["type"] = json!("member_keypair_rotate");
    let mut forged = frame.clone();
    forged["signature_old"] = json!("0".repeat(128));
    let refused = daemon.request(forged).await;
    assert_eq!(
        (&refused["type"], &refused["code"]),
        (&json!("error"), &json!("bad_signature"))
    );
    daemon.send(&frame).await;
    for client in [&mut daemon, &mut watching] {
        let rotated = client.event("member_keypair_rotated").await;
        assert_eq!(
            rotated["eventData"],
            json!({
                "member_id": alice.id,
                "old_pubkey": alice.pubkey(),
                "new_pubkey": new.public_key(),
                "key_id": "k_1",
            })
        );
    }
    for (target, text) in [
        (alice.pubkey(), "old key"),
        (new.public_key().to_string(), "new key"),
    ] {
        let ack = watching.deliver(&message(&target, text)).await;
        assert_eq!(ack["code"], 201, "{ack}");
        assert_eq!(body(&daemon.take().await), text);
    }
    let rotated = Member { key: new, ..alice };
    let joined = world.try_join("mallory", 1).await;
    assert!(
        matches!(joined, Err(BrokerError::Join(JoinRefusal::KeyReplaced))),
        "{joined:?}"
    );
    let ack = watching.deliver(&message(&alice_key, "still hers")).await;
    assert_eq!(ack["code"], 201, "{ack}");
    assert_eq!(body(&daemon.take().await), "still hers");
    let mut again = world.daemon(&rotated).await;
    again.settle().await;
    let mut old = world.connect().await;
    let former = Member {
        key: MeshPrivateKey::from_seed(&[1; 32]),
        ..rotated
    };
    old.send(&hello(&former, None)).await;
    assert_eq!(old.next_of("error").await["code"], "unauthorized");
}
