//! Two servers on one ledger: an agent may be connected to either.

use std::time::Duration;

use serde_json::json;

use crate::world::{TestSocket, World};

async fn pair() -> (World, World) {
    let first = World::new().await;
    let second = first.second(|_| ()).await.unwrap();
    (first, second)
}

async fn answer_once(socket: &mut TestSocket, bob: &crate::world::Identity, text: &str) {
    socket.answer(bob, &json!({"message": text})).await;
}

#[tokio::test]
async fn an_agent_receives_what_was_sent_to_the_other_node() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    let mut socket = there.connect(&bob.beam_id).await;
    for number in 0..3 {
        let frame = alice.message(&here, &bob, &format!("n-{number}"));
        let (answer, ()) = tokio::join!(
            here.post("/intents/send", &frame),
            answer_once(&mut socket, &bob, "from there"),
        );
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.json()["payload"]["message"], "from there");
        for world in [&here, &there] {
            let again = world.post("/intents/send", &frame).await;
            assert_eq!(again.text, answer.text, "both nodes know the result");
        }
    }
    let trace = here.trace("n-0").await;
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(
        stages,
        [
            "received",
            "validated",
            "queued",
            "dispatched",
            "dispatched",
            "delivered",
            "acked"
        ]
    );
}

#[tokio::test]
async fn one_nonce_sent_to_both_nodes_is_delivered_once() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    let mut socket = there.connect(&bob.beam_id).await;
    let frame = alice.message(&here, &bob, "n-1");
    let answering = async {
        let frame = socket.answer(&bob, &json!({})).await;
        // A second delivery would arrive within this time.
        let more = tokio::time::timeout(Duration::from_millis(500), socket.next_json()).await;
        assert!(more.is_err(), "{more:?}");
        frame
    };
    let (one, other, _) = tokio::join!(
        here.post("/intents/send", &frame),
        there.post("/intents/send", &frame),
        answering,
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert!(
        statuses == [200, 409] || statuses == [200, 200],
        "{statuses:?}"
    );
}

#[tokio::test]
async fn an_agent_that_moves_is_found_and_its_old_socket_is_closed() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    let mut old = there.connect(&bob.beam_id).await;
    let mut new = here.connect(&bob.beam_id).await;
    assert_eq!(
        old.closed().await,
        (1001, "Replaced by new connection".to_owned())
    );
    let frame = alice.message(&there, &bob, "n-1");
    let (answer, ()) = tokio::join!(
        there.post("/intents/send", &frame),
        answer_once(&mut new, &bob, "from here"),
    );
    assert_eq!(answer.json()["payload"]["message"], "from here");
}

#[tokio::test]
async fn an_agent_that_left_the_other_node_is_offline() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    let socket = there.connect(&bob.beam_id).await;
    drop(socket);
    let mut codes = Vec::new();
    for number in 0..100 {
        let frame = alice.message(&here, &bob, &format!("n-{number}"));
        let answer = here.post("/intents/send", &frame).await;
        codes.push(answer.error().1);
        if codes.last().is_some_and(|code| code == "OFFLINE") {
            return;
        }
    }
    panic!("{codes:?}");
}

#[tokio::test]
async fn without_a_result_from_the_other_node_the_intent_times_out_on_both() {
    let timeout = Duration::from_millis(400);
    let here = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let there = here
        .second(|settings| settings.result_timeout = Some(timeout))
        .await
        .unwrap();
    let (alice, bob) = here.alice_and_bob().await;
    let mut socket = there.connect(&bob.beam_id).await;
    let frame = alice.message(&here, &bob, "n-1");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    // The late result arrives at the other node and is known here.
    let message = socket.next_json().await.unwrap();
    let nonce = message["frame"]["nonce"].as_str().unwrap();
    socket
        .send(&bob.result(nonce, &json!({"message": "late"})))
        .await;
    here.until_status("n-1", "acked").await;
    let again = here.post("/intents/send", &frame).await;
    assert_eq!(again.json()["payload"]["message"], "late");
}
