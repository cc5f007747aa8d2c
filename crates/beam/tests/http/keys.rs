//! Keys: rotation, revocation, and what an old key may still do.

use consign_beam::directory::records::AgentKey;
use consign_beam::signed_text::BeamSignedText;
use serde_json::{Value, json};

use super::agents::{registered, registration};
use super::world::{Answer, Identity, World};

fn next_alice() -> Identity {
    Identity::new("alice@acme.beam.directory", 11)
}

async fn change(world: &World, what: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let path = format!("/agents/alice@acme.beam.directory/keys/{what}");
    world
        .request_elsewhere("POST", &path, headers, Some(body.to_string()))
        .await
}

fn rotation(signer: &Identity, new: &Identity, timestamp: &str) -> Value {
    let key = new.public_key();
    let text = BeamSignedText::keys_rotate(&signer.beam_id, &key, timestamp);
    json!({"new_public_key": key, "timestamp": timestamp, "signature": text.sign(&signer.key())})
}

fn revocation(signer: &Identity, key: &str, timestamp: &str) -> Value {
    let text = BeamSignedText::keys_revoke(&signer.beam_id, key, timestamp);
    json!({"public_key": key, "timestamp": timestamp, "signature": text.sign(&signer.key())})
}

#[tokio::test]
async fn be_085_a_signed_rotation_ends_the_old_key_at_once() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let next = next_alice();
    let body = rotation(&alice, &next, &world.now_text());
    let answer = change(&world, "rotate", &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let rotated = answer.json();
    assert_eq!(rotated["rotated"], json!(true));
    assert_eq!(rotated["beamId"], json!(alice.beam_id));
    assert_eq!(rotated["previousKey"], json!(alice.public_key()));
    assert_eq!(rotated["agent"]["public_key"], json!(next.public_key()));
    let state = &rotated["keyState"];
    assert_eq!(state["total"], 2);
    assert_eq!(state["active"]["publicKey"], json!(next.public_key()));
    assert_eq!(state["keys"][1]["publicKey"], json!(alice.public_key()));
    assert_eq!(state["keys"][1]["status"], "revoked");
    let listed = world
        .get("/agents/alice@acme.beam.directory/keys")
        .await
        .json();
    assert_eq!(listed, json!({"beamId": alice.beam_id, "keyState": state}));

    let mut socket = world.connect(&bob.beam_id).await;
    let old = world
        .post("/intents/send", &alice.message(&world, &bob, "old"))
        .await;
    assert_eq!(old.error(), (400, "INVALID_INTENT".to_owned()));
    let frame = next.message(&world, &bob, "new");
    let reply = json!({});
    let (sent, _) = tokio::join!(
        world.post("/intents/send", &frame),
        socket.answer(&bob, &reply)
    );
    assert_eq!(sent.status, 200, "{}", sent.text);

    let revoked = world.get("/keys/revoked").await.json();
    assert_eq!(revoked["total"], 1);
    assert_eq!(revoked["keys"][0], state["revoked"][0]);
}

#[tokio::test]
async fn be_085_a_rotation_by_api_key_or_by_a_signature_of_the_new_key() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let next = next_alice();
    let body = json!({"publicKey": next.public_key()});
    let refused = (400, "INVALID_ROTATION_PROOF".to_owned());
    assert_eq!(change(&world, "rotate", &[], &body).await.error(), refused);
    let path = "/agents/alice@acme.beam.directory/keys/rotate";
    assert_eq!(
        world.post(path, &body).await.error(),
        refused,
        "also on this machine"
    );
    let headers = [("x-api-key", key.as_str())];
    let answer = change(&world, "rotate", &headers, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);

    let third = Identity::new(&alice.beam_id, 12);
    let proof = |signer: &Identity| {
        let proof = signer.key().sign(third.public_key().as_bytes());
        json!({"public_key": third.public_key(), "rotation_proof": proof})
    };
    assert_eq!(world.post(path, &proof(&alice)).await.error(), refused);
    assert_eq!(world.post(path, &proof(&next)).await.status, 200);
}

/// A signature that names no agent, action or time, so that what the key signed for something else could serve as one.
fn bare_rotation(signer: &Identity, new: &Identity) -> Value {
    let key = new.public_key();
    json!({"new_public_key": key, "rotation_proof": signer.key().sign(key.as_bytes())})
}

#[tokio::test]
async fn a_rotation_proof_counts_only_from_this_machine_or_in_an_open_directory() {
    let world = World::new().await;
    let (alice, next) = (Identity::alice(), next_alice());
    registered(&world, &alice).await;
    let bare = bare_rotation(&alice, &next);
    let answer = change(&world, "rotate", &[], &bare).await;
    assert_eq!(answer.error(), (400, "INVALID_ROTATION_PROOF".to_owned()));
    let text = answer.json()["error"].as_str().unwrap().to_owned();
    for word in ["API key", "signature", "timestamp", "keys.rotate"] {
        assert!(text.contains(word), "{text}");
    }
    let path = "/agents/alice@acme.beam.directory/keys";
    let state = world.get(path).await.json();
    let active = &state["keyState"]["active"]["publicKey"];
    assert_eq!(*active, alice.public_key(), "{state}");
    // Beside a bound proof it changes nothing.
    let mut both = rotation(&alice, &next, &world.now_text());
    both["rotation_proof"] = bare["rotation_proof"].clone();
    assert_eq!(change(&world, "rotate", &[], &both).await.status, 200);

    let open = World::with(|settings| settings.open = true).await;
    registered(&open, &alice).await;
    assert_eq!(change(&open, "rotate", &[], &bare).await.status, 200);
}

#[tokio::test]
async fn refused_registrations_and_rotations_draw_no_number() {
    let world = World::new().await;
    let (alice, next) = (Identity::alice(), next_alice());
    let key = registered(&world, &alice).await;
    let number_of_key = async || {
        let path = "/agents/alice@acme.beam.directory/keys";
        let state = world.get(path).await.json();
        state["keyState"]["active"]["id"].as_u64().unwrap()
    };
    let before = number_of_key().await;
    for _ in 0..3 {
        let bare = bare_rotation(&next, &next);
        assert_eq!(change(&world, "rotate", &[], &bare).await.status, 400);
        let taking = registration(&next);
        let answer = world.post("/agents/register", &taking).await;
        assert_eq!(answer.error().1, "KEY_ROTATION_REQUIRED");
    }
    let headers = [("x-api-key", key.as_str())];
    let body = json!({"publicKey": next.public_key()});
    assert_eq!(change(&world, "rotate", &headers, &body).await.status, 200);
    assert_eq!(number_of_key().await, before + 1);
}

#[tokio::test]
async fn be_085_rotation_errors() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let headers = [("x-api-key", key.as_str())];
    for (body, code) in [
        (json!({}), "INVALID_ROTATION"),
        (json!({"new_public_key": "  "}), "INVALID_ROTATION"),
        (json!({"new_public_key": 7}), "INVALID_ROTATION"),
        (
            json!({"new_public_key": "AAAA"}),
            "INVALID_PUBLIC_KEY_FORMAT",
        ),
        (
            json!({"new_public_key": alice.public_key()}),
            "NOOP_ROTATION",
        ),
        // Another spelling of the same key.
        (
            json!({"new_public_key": alice.public_key().trim_end_matches('=')}),
            "NOOP_ROTATION",
        ),
    ] {
        let answer = change(&world, "rotate", &headers, &body).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{body}");
    }
    let path = "/agents/nobody@acme.beam.directory/keys/rotate";
    let answer = world
        .post(path, &json!({"publicKey": alice.public_key()}))
        .await;
    assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn be_085_a_rotation_must_be_signed_now_and_by_the_current_key() {
    let world = World::new().await;
    let alice = Identity::alice();
    registered(&world, &alice).await;
    let next = next_alice();
    let refused = (400, "INVALID_ROTATION_PROOF".to_owned());
    let now = world.now_text();
    for timestamp in [
        "2026-01-01T00:00:00.000Z",
        "2999-01-01T00:00:00.000Z",
        "now",
        "",
    ] {
        let body = rotation(&alice, &next, timestamp);
        assert_eq!(
            change(&world, "rotate", &[], &body).await.error(),
            refused,
            "{timestamp}"
        );
    }
    let mut without = rotation(&alice, &next, &now);
    without.as_object_mut().unwrap().remove("timestamp");
    assert_eq!(
        change(&world, "rotate", &[], &without).await.error(),
        refused
    );
    let body = rotation(&next, &next, &now);
    assert_eq!(
        change(&world, "rotate", &[], &body).await.error(),
        refused,
        "its own proof"
    );
    let mut other_key = rotation(&alice, &next, &now);
    other_key["new_public_key"] = json!(Identity::bob().public_key());
    assert_eq!(
        change(&world, "rotate", &[], &other_key).await.error(),
        refused
    );
}

#[tokio::test]
async fn be_084_a_replayed_rotation_does_not_bring_an_old_key_back() {
    let world = World::new().await;
    let (alice, next) = (Identity::alice(), next_alice());
    let key = registered(&world, &alice).await;
    let third = Identity::new(&alice.beam_id, 12);
    let first = rotation(&alice, &next, &world.now_text());
    assert_eq!(change(&world, "rotate", &[], &first).await.status, 200);
    let noop = (400, "NOOP_ROTATION".to_owned());
    assert_eq!(change(&world, "rotate", &[], &first).await.error(), noop);
    let second = rotation(&next, &third, &world.now_text());
    assert_eq!(change(&world, "rotate", &[], &second).await.status, 200);
    let refused = (400, "INVALID_ROTATION_PROOF".to_owned());
    assert_eq!(change(&world, "rotate", &[], &first).await.error(), refused);
    // The same request as a registration.
    let mut body = registration(&next);
    body["timestamp"] = first["timestamp"].clone();
    body["signature"] = first["signature"].clone();
    let answer = world.post("/agents/register", &body).await;
    assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
    // Not even the agent itself brings a revoked key back.
    let headers = [("x-api-key", key.as_str())];
    for old in [&alice, &next] {
        let body = json!({"new_public_key": old.public_key()});
        let answer = change(&world, "rotate", &headers, &body).await;
        assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
        let answer = world.post("/agents/register", &registration(old)).await;
        assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
    }
    let signed = rotation(&third, &alice, &world.now_text());
    let answer = change(&world, "rotate", &[], &signed).await;
    assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
    let state = world
        .get("/agents/alice@acme.beam.directory/keys")
        .await
        .json();
    assert_eq!(
        state["keyState"]["active"]["publicKey"],
        json!(third.public_key())
    );
}

#[tokio::test]
async fn be_086_a_key_that_is_not_current_is_revoked() {
    let world = World::new().await;
    let alice = Identity::alice();
    let api_key = registered(&world, &alice).await;
    let headers = [("x-api-key", api_key.as_str())];
    let spare = Identity::new(&alice.beam_id, 21).public_key();
    let stored = spare.clone();
    world
        .change_agent(&alice.beam_id, move |agent| {
            agent.keys.push(AgentKey {
                id: 900,
                public_key: stored.clone(),
                created_at: 1,
                revoked_at: None,
            });
        })
        .await;
    let unknown = Identity::bob().public_key();
    for (key, error) in [
        (alice.public_key(), (409, "ACTIVE_KEY_REQUIRED")),
        (unknown, (404, "KEY_NOT_FOUND")),
        ("AAAA".to_owned(), (400, "INVALID_PUBLIC_KEY_FORMAT")),
        (String::new(), (400, "INVALID_REVOCATION")),
    ] {
        let answer = change(&world, "revoke", &headers, &json!({"publicKey": key})).await;
        let (status, code) = answer.error();
        assert_eq!((status, code.as_str()), error, "{key}");
    }
    let invalid = (400, "INVALID_SIGNATURE".to_owned());
    let body = json!({"public_key": spare});
    assert_eq!(change(&world, "revoke", &[], &body).await.error(), invalid);
    let stale = revocation(&alice, &spare, "2026-01-01T00:00:00.000Z");
    assert_eq!(change(&world, "revoke", &[], &stale).await.error(), invalid);
    let signed = revocation(&alice, &spare, &world.now_text());
    let answer = change(&world, "revoke", &[], &signed).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["revoked"], json!(true));
    assert_eq!(body["revokedKey"], json!(spare));
    assert_eq!(body["keyState"]["revoked"][0]["publicKey"], json!(spare));
    assert_eq!(body["agent"]["public_key"], json!(alice.public_key()));
    let answer = change(&world, "revoke", &headers, &json!({"public_key": spare})).await;
    assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
}

#[tokio::test]
async fn concurrent_rotations_leave_one_current_key() {
    let world = World::new().await;
    let alice = Identity::alice();
    registered(&world, &alice).await;
    let now = world.now_text();
    let bodies: Vec<_> = (30..36)
        .map(|seed| rotation(&alice, &Identity::new(&alice.beam_id, seed), &now))
        .collect();
    let answers = futures_util::future::join_all(
        bodies
            .iter()
            .map(|body| change(&world, "rotate", &[], body)),
    )
    .await;
    let rotated = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(rotated, 1, "the key that signed is current once");
    let state = world
        .get("/agents/alice@acme.beam.directory/keys")
        .await
        .json();
    assert_eq!(state["keyState"]["total"], 2);
}
