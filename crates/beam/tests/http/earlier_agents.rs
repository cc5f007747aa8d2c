//! An agent that was deleted, and a later one with the same Beam-ID: the later one inherits nothing. And API keys that were
//! replaced.

use std::time::Duration;

use consign_testkit::ledger::Backend;
use serde_json::{Value, json};

use super::agents::registered;
use super::world::{Identity, World};

const MESSAGE: &str = "conversation.message";

async fn world() -> World {
    World::with(|settings| settings.result_timeout = Some(Duration::from_secs(5))).await
}

async fn delete(world: &World, beam_id: &str, key: &str) {
    let path = format!("/agents/{beam_id}");
    let headers = [("x-api-key", key)];
    let answer = world.request("DELETE", &path, &headers, None).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
}

/// Another owner of a Beam-ID. On a shared ledger, the clocks of two nodes may differ by two seconds, and what is that young
/// cannot be told apart.
async fn stranger(of: &Identity) -> Identity {
    if crate::backend() == Backend::Postgres {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }
    Identity::new(&of.beam_id, 77)
}

#[tokio::test]
async fn a_later_sender_does_not_get_the_results_of_an_earlier_one() {
    let world = world().await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    let key = registered(&world, &alice).await;
    registered(&world, &bob).await;
    world.allow(&bob.beam_id, MESSAGE, "*").await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let secret = json!({"message": "secret"});
    let (sent, _) = tokio::join!(
        world.post("/intents/send", &frame),
        socket.answer(&bob, &secret)
    );
    assert_eq!(sent.json()["payload"], secret);

    delete(&world, &alice.beam_id, &key).await;
    let later = stranger(&alice).await;
    let key = registered(&world, &later).await;
    let repeated = later.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &repeated).await;
    assert_eq!(answer.error(), (400, "INVALID_INTENT".to_owned()));
    assert!(!answer.text.contains("secret"), "{}", answer.text);
    let headers = [("x-api-key", &*key)];
    let recent = world
        .request_elsewhere("GET", "/intents/recent", &headers, None)
        .await;
    assert_eq!(recent.json()["intents"], json!([]), "{}", recent.text);

    // Its own intents are its own.
    let frame = later.message(&world, &bob, "n-2");
    let (sent, _) = tokio::join!(
        world.post("/intents/send", &frame),
        socket.answer(&bob, &secret)
    );
    assert_eq!(sent.status, 200, "{}", sent.text);
    let recent = world
        .request_elsewhere("GET", "/intents/recent", &headers, None)
        .await;
    assert_eq!(recent.json()["intents"][0]["nonce"], "n-2");
    assert_eq!(recent.json()["total"], 1);
}

#[tokio::test]
async fn a_later_recipient_does_not_answer_the_intents_of_an_earlier_one() {
    let world =
        World::with(|settings| settings.result_timeout = Some(Duration::from_millis(300))).await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    registered(&world, &alice).await;
    let key = registered(&world, &bob).await;
    world.allow(&bob.beam_id, MESSAGE, "*").await;
    let socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    drop(socket);

    delete(&world, &bob.beam_id, &key).await;
    let later = stranger(&bob).await;
    registered(&world, &later).await;
    let mut socket = world.connect(&later.beam_id).await;
    let forged = json!({"message": "forged"});
    socket.send(&later.result("n-1", &forged)).await;
    // The server reads a socket in order, so the result was handled before the error that follows.
    socket.send_text("{".to_owned()).await;
    socket.next_json().await.unwrap();
    let recent = world.get("/intents/recent").await.json();
    assert_eq!(recent["intents"][0]["status"], "failed");
}

#[tokio::test]
async fn the_connections_of_a_deleted_agent_end() {
    let world = world().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let mut socket = world.connect(&alice.beam_id).await;
    let elsewhere = [("x-forwarded-for", "203.0.113.7"), ("x-api-key", &*key)];
    let mut feed = world.open("/ws?feed=intents", &elsewhere).await.unwrap();
    assert_eq!(feed.next_json().await.unwrap()["type"], "feed_connected");
    delete(&world, &alice.beam_id, &key).await;
    assert_eq!(socket.closed().await.0, 1008);
    assert_eq!(feed.closed().await.0, 1008);
}

#[tokio::test]
async fn a_connection_ends_with_the_api_key_that_opened_it() {
    let world = world().await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    registered(&world, &bob).await;
    world.allow(&bob.beam_id, MESSAGE, "*").await;
    let leaked = registered(&world, &alice).await;
    let path = format!("/ws?beamId={}&apiKey={leaked}", alice.beam_id);
    let mut thief = world.open(&path, &[]).await.unwrap();
    thief.next_json().await.unwrap();
    let mut own = world.connect(&bob.beam_id).await;
    registered(&world, &alice).await;
    registered(&world, &bob).await;
    assert_eq!(thief.closed().await.0, 1008);
    // A connection of this machine without a key stays.
    let (frame, payload) = (alice.message(&world, &bob, "n-1"), json!({}));
    let (sent, _) = tokio::join!(
        world.post("/intents/send", &frame),
        own.answer(&bob, &payload)
    );
    assert_eq!(sent.status, 200, "{}", sent.text);
}

#[tokio::test]
async fn a_replaced_api_key_no_longer_stands_for_a_signature() {
    let world = world().await;
    let (alice, bob) = world.alice_and_bob().await;
    let key = world.add_agent(&alice).await;
    let path = format!("/ws?beamId={}&apiKey={key}", alice.beam_id);
    let mut from = world.open(&path, &[]).await.unwrap();
    from.next_json().await.unwrap();
    // As another node replaces it, which closes no socket here at once.
    world
        .change_agent(&alice.beam_id, |agent| {
            agent.api_key_hash = Some("0".repeat(64));
        })
        .await;
    let mut frame = alice.message(&world, &bob, "n-1");
    frame.as_object_mut().unwrap().remove("signature");
    from.send(&json!({"type": "intent", "frame": frame})).await;
    let error: Value = from.next_json().await.unwrap();
    assert_eq!(error["errorCode"], "BAD_REQUEST", "{error}");
}
