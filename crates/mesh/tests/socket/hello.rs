//! The hello of connections: what is refused, and in which order.

use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::signed_text::MeshSignedText;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, hello, now_ms};
use crate::world::{Member, World, operator, session_key};

/// The error frame and the closing frame of a refused hello.
async fn refusal(world: &World, frame: &Value) -> (String, (u16, String)) {
    let mut client = world.connect().await;
    client.send(frame).await;
    let error = client.next().await.unwrap();
    assert_eq!(error["type"], "error", "{error}");
    let code = error["code"].as_str().unwrap().to_owned();
    (code, client.closed().await)
}

async fn is_refused(world: &World, frame: &Value, code: &str) {
    let (given, closed) = refusal(world, frame).await;
    assert_eq!((given.as_str(), closed), (code, (1008, code.to_owned())));
}

#[tokio::test]
async fn cm_144_only_the_path_of_sockets_is_served_and_long_frames_close_it() {
    let world = World::new().await;
    for path in ["/", "/ws/", "/wsx", "/mesh/ws"] {
        assert!(Client::try_connect(world.address, path).await.is_err());
    }
    let alice = world.member("alice", 1).await;
    let mut client = world.plain(&alice).await;
    client.send(&json!({"type": "of_the_future"})).await;
    client.send_message(Message::binary(vec![1, 2, 3])).await;
    client.send_message(Message::text("no json")).await;
    let error = client.next().await.unwrap();
    assert_eq!(error["code"], "invalid_frame", "the first answer: {error}");
    let fits = json!({"type": "of_the_future", "text": "x".repeat(65_400)});
    client.send(&fits).await;
    client.settle().await;
    let long = json!({"type": "of_the_future", "text": "x".repeat(65_600)});
    client.send(&long).await;
    assert_eq!(client.closed().await.0, 1009);
}

#[tokio::test]
async fn cm_145_a_first_frame_that_is_no_hello_is_refused_and_the_socket_stays() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut client = world.connect().await;
    for frame in [json!({"type": "list_peers"}), json!({"type": "unknown"})] {
        client.send(&frame).await;
        let error = client.next().await.unwrap();
        assert_eq!(
            (error["code"].as_str(), error["message"].as_str()),
            (Some("no_hello"), Some("must send hello first"))
        );
    }
    client.say_hello(&hello(&alice, None)).await;
    client.send(&hello(&alice, None)).await;
    let again = client.next_of("error").await;
    assert_eq!(again["code"], "already_connected");
}

#[tokio::test]
async fn cm_146_refusals_of_a_hello_have_their_codes_in_their_order() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    // Everything is wrong at once, and is corrected step by step.
    let mut wrong = hello(&alice, None);
    wrong["sessionPubkey"] = json!("no key");
    wrong["timestamp"] = json!(now_ms() - 61_000);
    wrong["signature"] = json!("no signature");
    is_refused(&world, &wrong, "bad_session_pubkey").await;
    wrong.as_object_mut().unwrap().remove("sessionPubkey");
    is_refused(&world, &wrong, "timestamp_skew").await;
    wrong["timestamp"] = json!(now_ms());
    is_refused(&world, &wrong, "malformed").await;
    wrong["signature"] = json!("0".repeat(128));
    is_refused(&world, &wrong, "bad_signature").await;

    let stranger = Member {
        id: alice.id.clone(),
        mesh_id: alice.mesh_id.clone(),
        name: "stranger".to_owned(),
        key: MeshPrivateKey::from_seed(&[99; 32]),
    };
    is_refused(&world, &hello(&stranger, None), "unauthorized").await;
    let other_id = Member {
        id: "another".to_owned(),
        key: MeshPrivateKey::from_seed(&[1; 32]),
        ..stranger
    };
    is_refused(&world, &hello(&other_id, None), "unauthorized").await;
    let mut incomplete = hello(&alice, None);
    incomplete.as_object_mut().unwrap().remove("meshId");
    is_refused(&world, &incomplete, "malformed").await;

    let mut connected = world.plain(&alice).await;
    let key = alice.key.public_key();
    let revoked = world.broker.revoke_member(operator(), "acme", key).await;
    assert!(revoked.unwrap().revoked_at.is_some());
    let report = connected.event("member_revoked").await;
    assert_eq!(report["eventData"]["pubkey"], alice.pubkey());
    assert_eq!(connected.closed().await, (4002, "banned".to_owned()));
    let (code, closed) = refusal(&world, &hello(&alice, None)).await;
    assert_eq!(
        (code.as_str(), closed),
        ("revoked", (4002, "banned".to_owned()))
    );
}

#[tokio::test]
async fn a_hello_to_a_mesh_that_does_not_exist_leaves_nothing_behind() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let invented = Member {
        mesh_id: "invented".to_owned(),
        ..alice
    };
    is_refused(&world, &hello(&invented, None), "unauthorized").await;
    assert!(!format!("{:?}", world.broker).contains("invented"));
    for (mesh_id, id) in [
        ("m".repeat(129), "a".to_owned()),
        ("m".to_owned(), "a".repeat(129)),
    ] {
        let long = Member {
            id,
            mesh_id,
            name: "alice".to_owned(),
            key: MeshPrivateKey::from_seed(&[1; 32]),
        };
        is_refused(&world, &hello(&long, None), "malformed").await;
    }
}

#[tokio::test]
async fn the_key_of_a_session_is_no_member_s_and_no_other_member_s_session() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let revoked = world
        .broker
        .revoke_member(operator(), "acme", carol.key.public_key());
    revoked.await.unwrap();
    for key in [&alice.key, &bob.key, &carol.key] {
        is_refused(&world, &hello(&alice, Some(key)), "bad_session_pubkey").await;
    }
    let mut session = world.session(&bob, 60).await;
    let stolen = hello(&alice, Some(&session_key(60)));
    is_refused(&world, &stolen, "bad_session_pubkey").await;
    let attested = session_hello(&alice, &session_key(60), now_ms() + 60_000);
    is_refused(&world, &attested, "bad_session_pubkey").await;
    session.settle().await;
    // Its own member continues it.
    world.session(&bob, 60).await.settle().await;
}

#[tokio::test]
async fn cm_146_a_mesh_has_a_hundred_connections() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let carol = world.member("carol", 3).await;
    let mut clients = Vec::new();
    for seed in 100..164 {
        clients.push(world.session(&alice, seed).await);
    }
    // One member does not take all places.
    let one_more = hello(&alice, Some(&session_key(201)));
    is_refused(&world, &one_more, "capacity").await;
    for seed in 164..200 {
        clients.push(world.session(&bob, seed).await);
    }
    let one_more = hello(&carol, Some(&session_key(201)));
    is_refused(&world, &one_more, "capacity").await;
    // A connection that replaces one needs no place of its own.
    for (member, seed) in [(&alice, 150), (&bob, 170)] {
        world.session(member, seed).await.settle().await;
    }
}

#[tokio::test]
async fn a_mesh_has_a_hundred_presences_that_wait_for_their_clients() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.daemon(&bob).await;
    for seed in 100..202 {
        let session = world.session(&alice, seed).await;
        watching.event("peer_joined").await;
        session.drop_line();
    }
    for seed in [100, 101] {
        let left = watching.event("peer_left").await;
        let key = session_key(seed).public_key().to_string();
        assert_eq!(left["eventData"]["pubkey"], key);
    }
    let list = watching.request(json!({"type": "list_peers"})).await;
    assert_eq!(list["peers"].as_array().unwrap().len(), 101);
    assert!(watching.unread("push").is_empty(), "the others stay");
}

#[tokio::test]
async fn cm_147_cm_148_a_hello_is_answered_with_its_member_and_others_learn_of_it() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut watching = world.plain(&bob).await;
    let mut client = world.connect().await;
    let frame = hello(&alice, None);
    assert!(frame.get("cwd").is_none());
    let ack = client.say_hello(&frame).await;
    assert_eq!(ack["memberDisplayName"], "alice");
    assert!(!ack["presenceId"].as_str().unwrap().is_empty());
    assert_eq!(
        ack["memberProfile"],
        json!({"roleTag": null, "groups": [], "messageMode": "push"})
    );
    assert_eq!(ack.get("restored"), None);
    let joined = watching.event("peer_joined").await;
    assert_eq!(joined["type"], "push");
    assert_eq!(joined["subtype"], "system");
    assert_eq!(joined["senderPubkey"], "system");
    assert_eq!(
        (&joined["nonce"], &joined["ciphertext"]),
        (&json!(""), &json!(""))
    );
    assert_eq!(joined["eventData"]["memberPubkey"], alice.pubkey());
    assert_eq!(joined["eventData"]["name"], "alice");
    client.settle().await;
    assert!(client.unread("push").is_empty(), "not of itself");
}

fn session_hello(member: &Member, session: &MeshPrivateKey, expires_at: u64) -> Value {
    let (parent, key, now) = (member.pubkey(), session.public_key().to_string(), now_ms());
    let attestation = MeshSignedText::attestation(&parent, &key, expires_at);
    let text = MeshSignedText::session_hello(&member.mesh_id, &parent, &key, now);
    json!({
        "type": "session_hello",
        "meshId": member.mesh_id,
        "parentMemberId": member.id,
        "parentMemberPubkey": parent,
        "sessionPubkey": key,
        "parentAttestation": {
            "sessionPubkey": key,
            "parentMemberPubkey": parent,
            "expiresAt": expires_at,
            "signature": attestation.sign(&member.key),
        },
        "displayName": "a session",
        "timestamp": now,
        "signature": text.sign(session),
    })
}

#[tokio::test]
async fn cm_149_a_session_needs_an_attestation_of_at_most_a_day() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let (session, day) = (session_key(50), 24 * 3_600_000);
    let good = session_hello(&alice, &session, now_ms() + day - 5_000);
    let long = session_hello(&alice, &session, now_ms() + day + 60_000);
    is_refused(&world, &long, "ttl_too_long").await;
    let over = session_hello(&alice, &session, now_ms() - 1);
    is_refused(&world, &over, "expired").await;
    let change = |member: &str, value: Value| {
        let mut frame = good.clone();
        frame[member] = value;
        frame
    };
    let other = session_key(51).public_key().to_string();
    for (frame, code) in [
        (change("sessionPubkey", json!("x")), "bad_session_pubkey"),
        (
            change("parentMemberPubkey", json!("x")),
            "bad_parent_pubkey",
        ),
        (
            change("sessionPubkey", json!(other)),
            "attestation_mismatch",
        ),
        (change("signature", json!("0".repeat(128))), "bad_signature"),
        (
            change("parentMemberId", json!("x")),
            "parent_member_id_mismatch",
        ),
        (
            change("timestamp", json!(now_ms() - 61_000)),
            "timestamp_skew",
        ),
    ] {
        is_refused(&world, &frame, code).await;
    }
    let mut forged = good.clone();
    forged["parentAttestation"]["signature"] = json!("0".repeat(128));
    is_refused(&world, &forged, "bad_signature").await;

    let mut client = world.connect().await;
    let first = client.say_hello(&good).await;
    // The same key is the same presence, and the earlier connection is closed.
    let mut again = world.connect().await;
    let second = again.say_hello(&good).await;
    assert_eq!(first["presenceId"], second["presenceId"]);
    assert_eq!(second["restored"], true);
    assert_eq!(client.closed().await, (1000, "session_replaced".to_owned()));
}

#[tokio::test]
async fn cm_115_connections_refusals_and_copied_daemons_are_counted() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let on_machine = |digit: &str| {
        let mut frame = hello(&alice, None);
        frame["hostFingerprint"] = json!(digit.repeat(64));
        frame
    };
    let suspected = format!(
        "cm_broker_member_clone_suspected_total{{mesh_id=\"{}\"}}",
        world.mesh_id
    );
    let mut watching = world.plain(&bob).await;
    let mut daemon = world.connect().await;
    daemon.say_hello(&on_machine("a")).await;
    daemon.settle().await;
    assert_eq!(world.metric("broker_connections_active").await, 2);
    assert_eq!(world.metric(&suspected).await, 0);
    daemon.drop_line();
    let mut moved = world.connect().await;
    moved.say_hello(&on_machine("b")).await;
    moved.settle().await;
    assert_eq!(world.metric(&suspected).await, 1);
    assert_eq!(world.metric("broker_connections_total").await, 3);
    moved.drop_line();
    // The end of a connection is noticed a little later.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while world.metric("broker_connections_active").await != 1 {
        assert!(tokio::time::Instant::now() < deadline, "two are gone");
    }
    let mut wrong = hello(&alice, None);
    wrong["signature"] = json!("0".repeat(128));
    is_refused(&world, &wrong, "bad_signature").await;
    let refused = "broker_connections_rejected_total{reason=\"bad_signature\"}";
    assert_eq!(world.metric(refused).await, 1);
    watching
        .deliver(&crate::client::message("#none", "x"))
        .await;
    let refused = "broker_messages_rejected_total{reason=\"not_found\"}";
    assert_eq!(world.metric(refused).await, 1);
}
