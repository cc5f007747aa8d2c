//! Intents between two agents.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn be_094_an_intent_is_answered_and_its_repetition_gets_the_same_bytes() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "nonce-1");
    let sent = frame.clone();
    let answering = tokio::spawn(async move {
        let got = socket.answer(&bob, &json!({"message": "re: hello"})).await;
        (socket, got)
    });
    let first = world.post("/intents/send", &frame).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(first.json()["payload"]["message"], "re: hello");
    let (_socket, got) = answering.await.unwrap();
    assert_eq!(got, sent);
    let again = world.post("/intents/send", &frame).await;
    assert_eq!((again.status, again.text), (200, first.text));
}
