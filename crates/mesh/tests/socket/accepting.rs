//! What the broker answers to a `send`, and what it stores.

use consign_mesh::broker::DedupeRetention;
use consign_mesh::destination::DestinationKind;
use consign_testkit::ledger::Backend;
use serde_json::{Value, json};

use crate::client::{keyed, message};
use crate::world::{World, operator};

const TABLE: &str = "client_message_dedupe";

/// Where the tables of the mesh are.
fn schema() -> &'static str {
    if crate::backend() == Backend::Postgres {
        "mesh."
    } else {
        ""
    }
}

/// The rows of the dedupe table, one text each.
fn dedupe_rows(world: &World) -> Vec<String> {
    let schema = schema();
    world
        .ledger
        .sql(&format!("SELECT client_message_id FROM {schema}{TABLE}"))
}

fn code(ack: &Value) -> u64 {
    ack["code"].as_u64().unwrap()
}

/// The word that the error of an `ack` begins with.
fn word(ack: &Value) -> &str {
    let error = ack["error"].as_str().unwrap();
    error.split(':').next().unwrap()
}

#[tokio::test]
async fn cm_058_cm_059_cm_061_cm_151_a_message_is_accepted_once_and_pushed_once() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let key = bob.pubkey();
    let mut frame = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    let ack = sender.deliver(&frame).await;
    assert_eq!((code(&ack), &ack["queued"]), (201, &json!(true)), "{ack}");
    assert_eq!(ack["duplicate"], false);
    assert_eq!(ack["client_message_id"], "c-1");
    let id = ack["broker_message_id"].as_str().unwrap();
    assert_eq!((ack["messageId"].as_str(), id.len()), (Some(id), 36));
    assert_eq!(id, id.to_lowercase());
    assert!(ack["history_id"].is_string());

    let push = receiver.take().await;
    assert_eq!(push["messageId"], id);
    assert_eq!(push["client_message_id"], "c-1");
    assert_eq!(push["senderPubkey"], alice.pubkey());
    assert_eq!(push["senderMemberPubkey"], alice.pubkey());
    assert_eq!(push["senderMemberId"], alice.id.as_str());
    assert_eq!(push["senderName"], "alice");
    assert_eq!(push["request_fingerprint"], frame["request_fingerprint"]);
    assert_eq!(push["meshId"], alice.mesh_id.as_str());
    assert!(push["createdAt"].as_str().unwrap().ends_with('Z'));

    frame["id"] = json!("r-2");
    let again = sender.deliver(&frame).await;
    assert_eq!((code(&again), &again["duplicate"]), (200, &json!(true)));
    assert_eq!(again["broker_message_id"], id);
    assert_eq!(again["history_id"], ack["history_id"]);
    assert_eq!(again["history_available"], true);
    assert!(again["first_seen_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(again["destination_kind"], "dm");
    assert_eq!(again["destination_ref"], key.as_str());

    // The next push is the next message, not the first one again.
    let marker = keyed("c-2", &key, DestinationKind::Dm, &key, "marker");
    sender.deliver(&marker).await;
    assert_eq!(receiver.take().await["client_message_id"], "c-2");
    assert_eq!(dedupe_rows(&world).len(), 2);
}

#[tokio::test]
async fn cm_052_cm_053_cm_060_another_request_with_the_id_is_a_conflict() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    let key = bob.pubkey();
    let first = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    sender.deliver(&first).await;
    let other = keyed("c-1", &key, DestinationKind::Dm, &key, "other");
    let conflict = sender.deliver(&other).await;
    assert_eq!(code(&conflict), 409);
    assert_eq!(conflict["conflict"], "request_fingerprint_mismatch");
    assert_eq!(
        (&conflict["messageId"], &conflict["queued"]),
        (&json!(""), &json!(false))
    );
    let stored = first["request_fingerprint"].as_str().unwrap();
    assert_eq!(conflict["broker_fingerprint_prefix"], stored[..16]);

    // A claim that the broker does not reproduce, at first and on a retry.
    for (id, text) in [("c-2", "hello"), ("c-1", "hello")] {
        let mut drift = keyed(id, &key, DestinationKind::Dm, &key, text);
        let computed = drift["request_fingerprint"].as_str().unwrap().to_owned();
        drift["request_fingerprint"] = json!("0".repeat(64));
        let answer = sender.deliver(&drift).await;
        assert_eq!(
            (code(&answer), word(&answer)),
            (409, "idempotency_key_reused")
        );
        assert_eq!(answer["broker_fingerprint_prefix"], computed[..16]);
    }
    assert_eq!(dedupe_rows(&world), ["c-1"]);
}

#[tokio::test]
async fn cm_164_another_member_learns_nothing_of_an_id() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut one, mut other) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let frame = keyed("c-1", "*", DestinationKind::Queue, "*", "hello");
    one.deliver(&frame).await;
    for text in ["hello", "something else"] {
        let frame = keyed("c-1", "*", DestinationKind::Queue, "*", text);
        let conflict = other.deliver(&frame).await;
        assert_eq!(code(&conflict), 409);
        assert_eq!(conflict["conflict"], "request_fingerprint_mismatch");
        for member in [
            "broker_fingerprint_prefix",
            "broker_message_id",
            "history_id",
        ] {
            assert_eq!(conflict.get(member), None, "{conflict}");
        }
        assert_eq!(conflict["messageId"], "");
    }
}

#[tokio::test]
async fn cm_055_cm_067_cm_068_a_refusal_uses_up_no_id() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let mut sender = world.daemon(&alice).await;
    let key = bob.pubkey();
    let nobody = "ab".repeat(32);
    let good = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    let change = |member: &str, value: Value| {
        let mut frame = good.clone();
        frame[member] = value;
        frame
    };
    let refused = [
        (
            change("targetSpec", json!("no target")),
            400,
            "invalid_destination",
        ),
        (change("priority", json!("soon")), 400, "invalid_priority"),
        (change("ciphertext", json!("%%%")), 400, "invalid_frame"),
        (change("ciphertext", json!(7)), 400, "invalid_frame"),
        (
            change("body_sha256", json!("x")),
            400,
            "invalid_request_fingerprint",
        ),
        (
            change("client_message_id", json!("a b")),
            400,
            "invalid_client_message_id",
        ),
        (change("meta", json!([1])), 400, "invalid_frame"),
        (
            change("destination_ref", json!(nobody)),
            400,
            "invalid_destination",
        ),
        (
            change("destination_kind", json!("topic")),
            400,
            "invalid_destination",
        ),
        (
            keyed("c-1", &nobody, DestinationKind::Dm, &nobody, "hello"),
            404,
            "not_found",
        ),
        (
            keyed("c-1", "#none", DestinationKind::Topic, "none", "hello"),
            404,
            "not_found",
        ),
    ];
    for (frame, status, reason) in refused {
        let ack = sender.deliver(&frame).await;
        assert_eq!((code(&ack), word(&ack)), (status, reason), "{ack}");
        assert_eq!(
            (&ack["messageId"], &ack["queued"]),
            (&json!(""), &json!(false))
        );
    }
    // A topic that the sender has left.
    let in_topic = keyed(
        "c-1",
        "#general",
        DestinationKind::Topic,
        "general",
        "hello",
    );
    sender
        .send(&json!({"type": "topic_leave", "topic": "general"}))
        .await;
    let forbidden = sender.deliver(&in_topic).await;
    assert_eq!((code(&forbidden), word(&forbidden)), (403, "forbidden"));
    assert_eq!(dedupe_rows(&world), Vec::<String>::new());

    let accepted = sender.deliver(&good).await;
    assert_eq!(code(&accepted), 201);
    assert_eq!(dedupe_rows(&world), ["c-1"]);

    // A member that is revoked is not found from then on.
    let revoked = world
        .broker
        .revoke_member(operator(), "acme", bob.key.public_key());
    revoked.await.unwrap();
    let gone = keyed("c-2", &key, DestinationKind::Dm, &key, "hello");
    let ack = sender.deliver(&gone).await;
    assert_eq!((code(&ack), word(&ack)), (404, "not_found"));
    let retried = sender.deliver(&good).await;
    assert_eq!(code(&retried), 200, "what was accepted stays so: {retried}");
}

#[tokio::test]
async fn cm_056_a_clear_body_must_have_its_hash() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut sender = world.daemon(&alice).await;
    for (target, kind) in [
        ("#general", DestinationKind::Topic),
        ("*", DestinationKind::Queue),
    ] {
        let mut frame = keyed("c-1", target, kind, target.trim_start_matches('#'), "hello");
        frame["ciphertext"] = message(target, "other")["ciphertext"].clone();
        let ack = sender.deliver(&frame).await;
        assert_eq!(
            (code(&ack), word(&ack)),
            (400, "body_hash_mismatch"),
            "{ack}"
        );
    }
    assert_eq!(dedupe_rows(&world), Vec::<String>::new());
}

#[tokio::test]
async fn cm_057_messages_of_upstreams_daemon_are_accepted_once_and_others_every_time() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let mut opaque = message(&bob.pubkey(), "opaque");
    opaque["client_message_id"] = json!("c-1");
    opaque["request_fingerprint"] = json!("5a".repeat(32));
    assert_eq!(code(&sender.deliver(&opaque).await), 201);
    assert_eq!(code(&sender.deliver(&opaque).await), 200);
    opaque["request_fingerprint"] = json!("5b".repeat(32));
    assert_eq!(code(&sender.deliver(&opaque).await), 409);
    let mut bare = message(&bob.pubkey(), "bare");
    bare["client_message_id"] = json!("c-2");
    assert_eq!(code(&sender.deliver(&bare).await), 201);
    assert_eq!(code(&sender.deliver(&bare).await), 200);
    let unkeyed = message(&bob.pubkey(), "unkeyed");
    for _ in 0..2 {
        let ack = sender.deliver(&unkeyed).await;
        assert_eq!((code(&ack), ack.get("client_message_id")), (201, None));
    }
    let mut pushed = Vec::new();
    for _ in 0..4 {
        pushed.push(crate::client::body(&receiver.take().await));
    }
    assert_eq!(pushed, ["opaque", "bare", "unkeyed", "unkeyed"]);
}

#[tokio::test]
async fn cm_094_a_retry_is_answered_although_the_rate_is_used_up() {
    let world = World::with(
        |settings| {
            settings.sends_per_minute = 1;
            settings.send_burst = 2;
        },
        |_| (),
    )
    .await;
    let alice = world.member("alice", 1).await;
    let mut sender = world.daemon(&alice).await;
    let frame = |id: &str| keyed(id, "*", DestinationKind::Queue, "*", "hello");
    for id in ["c-1", "c-2"] {
        assert_eq!(code(&sender.deliver(&frame(id)).await), 201);
    }
    let limited = sender.deliver(&frame("c-3")).await;
    assert_eq!((code(&limited), word(&limited)), (429, "rate_limit"));
    for _ in 0..3 {
        assert_eq!(code(&sender.deliver(&frame("c-1")).await), 200);
    }
    assert_eq!(dedupe_rows(&world).len(), 2);
}

#[tokio::test]
async fn cm_094_retries_use_nothing_of_a_full_bucket() {
    let slow = |settings: &mut consign_mesh::broker::BrokerSettings| {
        settings.sends_per_minute = 1;
        settings.send_burst = 3;
    };
    let world = World::with(slow, |_| ()).await;
    let alice = world.member("alice", 1).await;
    let mut sender = world.daemon(&alice).await;
    let frame = |id: &str| keyed(id, "*", DestinationKind::Queue, "*", "hello");
    assert_eq!(code(&sender.deliver(&frame("c-1")).await), 201);
    // The broker forgets which ids it has counted, and remembers those that it has accepted.
    let world = world.restarted_with(slow).await;
    let mut sender = world.daemon(&alice).await;
    for _ in 0..5 {
        assert_eq!(code(&sender.deliver(&frame("c-1")).await), 200);
    }
    for id in ["c-2", "c-3", "c-4"] {
        assert_eq!(code(&sender.deliver(&frame(id)).await), 201, "{id}");
    }
    let limited = sender.deliver(&frame("c-5")).await;
    assert_eq!((code(&limited), word(&limited)), (429, "rate_limit"));
}

#[tokio::test]
async fn cm_151_pushes_of_topics_and_groups_have_all_members_and_are_repeated_as_they_were() {
    let brief = std::time::Duration::from_secs(1);
    let world = World::with(|settings| settings.delivery_lease = brief, |_| ()).await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.session(&alice, 60).await, world.daemon(&bob).await);
    receiver
        .send(&json!({"type": "join_group", "name": "ops"}))
        .await;
    receiver.settle().await;
    for (id, target, kind, reference) in [
        ("c-1", "#general", DestinationKind::Topic, "general"),
        ("c-2", "@ops", DestinationKind::Queue, "@ops"),
    ] {
        let mut frame = keyed(id, target, kind, reference, "hello");
        frame["mentions"] = json!([bob.id]);
        let ack = sender.deliver(&frame).await;
        assert_eq!(code(&ack), 201, "{ack}");
        let push = receiver.push().await;
        let mut expected = json!({
            "type": "push",
            "messageId": ack["messageId"],
            "meshId": world.mesh_id,
            "senderPubkey": crate::world::session_key(60).public_key(),
            "senderMemberPubkey": alice.pubkey(),
            "senderMemberId": alice.id,
            "senderName": "alice",
            "priority": "next",
            "nonce": "",
            "ciphertext": frame["ciphertext"],
            "createdAt": push["createdAt"],
            "bodyVersion": 1,
            "client_message_id": id,
            "request_fingerprint": frame["request_fingerprint"],
        });
        if kind == DestinationKind::Topic {
            expected["topic"] = json!("general");
        }
        assert_eq!(push, expected);
        assert_eq!(receiver.take().await, push, "the lease has ended");
    }
}

#[tokio::test]
async fn cm_072_of_two_first_sends_at_once_one_is_accepted() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut one = world.session(&alice, 50).await;
    let mut other = world.session(&alice, 51).await;
    for round in 0..20 {
        let id = format!("c-{round}");
        let same = keyed(&id, "*", DestinationKind::Queue, "*", "hello");
        let second = if round % 2 == 0 {
            same.clone()
        } else {
            keyed(&id, "*", DestinationKind::Queue, "*", "other")
        };
        let (first, second) = tokio::join!(one.deliver(&same), other.deliver(&second));
        let mut codes = [code(&first), code(&second)];
        codes.sort_unstable();
        let expected = if round % 2 == 0 {
            [200, 201]
        } else {
            [201, 409]
        };
        assert_eq!(codes, expected, "{first} {second}");
    }
    assert_eq!(dedupe_rows(&world).len(), 20);
}

#[tokio::test]
async fn cm_043_ids_are_remembered_for_the_retention_of_the_mesh() {
    for (dedupe, days) in [
        (DedupeRetention::default(), Some(365)),
        (DedupeRetention::Days(3), Some(3)),
        (DedupeRetention::Permanent, None),
    ] {
        let world = World::with(|_| (), |mesh| mesh.dedupe = dedupe).await;
        let alice = world.member("alice", 1).await;
        let mut sender = world.daemon(&alice).await;
        let frame = keyed("c-1", "*", DestinationKind::Queue, "*", "hello");
        assert_eq!(code(&sender.deliver(&frame).await), 201);
        let sql = if crate::backend() == Backend::Postgres {
            "SELECT coalesce((extract(epoch from expires_at - first_seen_at) / 86400)::int::text, 'never') FROM mesh.client_message_dedupe"
        } else {
            "SELECT coalesce(cast(round(julianday(expires_at) - julianday(first_seen_at)) as integer), 'never') FROM client_message_dedupe"
        };
        let rows = world.ledger.sql(sql);
        let expected = days.map_or("never".to_owned(), |days: u32| days.to_string());
        assert_eq!(rows, [expected]);
    }
}

#[tokio::test]
async fn pipelined_messages_are_answered_and_accepted_in_their_order() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let key = bob.pubkey();
    for number in 0..200 {
        let mut frame = keyed(&format!("c-{number}"), &key, DestinationKind::Dm, &key, "x");
        frame["id"] = json!(format!("r-{number}"));
        sender.send(&frame).await;
    }
    let mut last = String::new();
    for number in 0..200 {
        let ack = sender.next_of("ack").await;
        assert_eq!(ack["id"], format!("r-{number}"));
        let id = ack["messageId"].as_str().unwrap().to_owned();
        assert!(id > last, "{id} follows {last}");
        last = id;
    }
    for number in 0..200 {
        assert_eq!(
            receiver.take().await["client_message_id"],
            format!("c-{number}")
        );
    }
}

#[tokio::test]
async fn a_connection_that_did_not_negotiate_gets_an_error_before_a_failing_ack() {
    let world = World::new().await;
    let alice = world.member("alice", 1).await;
    let mut legacy = world.session(&alice, 50).await;
    legacy.send(&message("#none", "hello")).await;
    let error = legacy.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("error"), &json!("not_found"))
    );
    assert_eq!(error["id"], "r-1");
    let ack = legacy.next().await.unwrap();
    assert_eq!((&ack["type"], code(&ack)), (&json!("ack"), 404));

    let mut daemon = world.daemon(&alice).await;
    let ack = daemon.deliver(&message("#none", "hello")).await;
    assert_eq!(code(&ack), 404);
    assert!(daemon.unread("error").is_empty());
}

#[tokio::test]
async fn cm_074_history_deliveries_and_mentions_are_stored_with_the_message() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    world.member("carol", 3).await;
    let mut sender = world.daemon(&alice).await;
    let frame = keyed(
        "c-1",
        "#general",
        DestinationKind::Topic,
        "general",
        "hi @bob and @nobody",
    );
    assert_eq!(code(&sender.deliver(&frame).await), 201);
    let schema = schema();
    let rows = |sql: &str| {
        world
            .ledger
            .sql(&sql.replace("FROM ", &format!("FROM {schema}")))
    };
    assert_eq!(rows("SELECT client_message_id FROM topic_message"), ["c-1"]);
    assert_eq!(
        rows("SELECT mentioned_member FROM mention_index"),
        [bob.id.as_str()]
    );
    assert_eq!(
        rows("SELECT sender_member_id FROM message_history"),
        [alice.id.as_str()]
    );
    let recipients = rows("SELECT recipient_member_id FROM delivery_queue");
    assert_eq!(recipients.len(), 2);
    assert!(!recipients.contains(&alice.id));
}
