//! Messages after a restart.

use std::time::Duration;

use consign_kernel::command::{Command, Restore};
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::state::{Cause, State};
use serde_json::json;

use crate::bus::{answer_all, bus_settings, bus_world, message};
use crate::world::World;

const RECOVERED: &str = "Recovered after message bus restart";

#[tokio::test]
async fn be_008_be_045_a_restart_queues_what_was_dispatched_and_keeps_the_rest() {
    let slow = |settings: &mut consign_beam::settings::BeamSettings| {
        bus_settings(settings);
        settings.bus.retry_second_us = 1_000_000;
    };
    let (world, _, bob) = bus_world(slow).await;
    let queued = world.send(&message("n-queued")).await.json();
    let queued = queued["message_id"].as_str().unwrap();
    let mut socket = world.connect(&bob.beam_id).await;
    let body = message("n-delivered");
    let answer = json!({"message": "ok"});
    let (delivered, _) = tokio::join!(world.send(&body), socket.answer(&bob, &answer));
    let delivered = delivered.json();
    let delivered = delivered["message_id"].as_str().unwrap();
    // The recipient does not answer this one.
    {
        let body = message("n-dispatched");
        let send = world.send(&body);
        let _ = tokio::time::timeout(Duration::from_millis(500), send).await;
    }
    let history = world.get("/v1/beam/history?status=dispatched").await.json();
    let dispatched = history["messages"][0]["id"].as_str().unwrap();
    assert_eq!(history["count"], 1, "{history}");
    // An import may leave a message that was only received.
    let template: IntentId = queued.parse().unwrap();
    let mut imported = world.engine.observe(template).await.unwrap().unwrap();
    imported.id = IntentId::new(Micros(1_700_000_000_000_000), Seq(0), 7);
    imported.payload = imported.payload.replace("n-queued", "n-imported");
    imported.state = State::Received;
    imported.cause = Cause::None;
    imported.attempts = 0;
    imported.last_error = None;
    let received = imported.id.to_string();
    let restore = Command::Restore(Box::new(Restore::bare(imported)));
    world.engine.apply(None, restore).await.unwrap();
    let before = (world.stored(queued).await, world.stored(delivered).await);
    drop(socket);
    let ledger = world.ledger();
    drop(world);

    let world = World::restarted(ledger, "start-2", slow).await;
    assert_eq!(world.stored(queued).await, before.0);
    assert_eq!(world.stored(delivered).await, before.1);
    for id in [dispatched, &received] {
        let message = world.stored(id).await;
        assert_eq!(
            (&message["status"], &message["error"]),
            (&json!("queued"), &json!(RECOVERED))
        );
        assert_eq!(
            message["retry_count"], 0,
            "an interrupted attempt does not count"
        );
        let due = message["next_retry_at"].as_f64().unwrap();
        let now = world.engine.now().seconds();
        assert!(due <= now && due > now - 60.0, "{due} {now}");
    }
    let _frames = answer_all(world.connect(&bob.beam_id).await, bob);
    assert_eq!(world.beam.retry_due_messages().await.unwrap(), 2);
    assert_eq!(world.stored(&received).await["status"], "delivered");
    assert_eq!(
        world.walk(&received).await,
        ["received", "queued", "dispatched", "delivered"]
    );
    // The directory may still wait for the recipient's first answer; the message is not lost.
    let walk = world.walk(dispatched).await;
    assert_eq!(
        walk[..4],
        ["received", "dispatched", "queued", "dispatched"],
        "{walk:?}"
    );
}

#[tokio::test]
async fn a_stop_gives_back_what_was_claimed_and_not_attempted() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let sent = world.send(&message(&format!("n-{number}"))).await.json();
        ids.push(sent["message_id"].as_str().unwrap().to_owned());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The recipient is connected and does not answer, so the first attempt lasts.
    let mut socket = world.connect(&bob.beam_id).await;
    let beam = world.beam.clone();
    let tick = tokio::spawn(async move { beam.retry_due_messages().await.unwrap() });
    socket.next_json().await.unwrap();
    world.drain();
    let attempted = tokio::time::timeout(Duration::from_secs(8), tick).await;
    assert_eq!(attempted.unwrap().unwrap(), 1);
    for id in &ids[1..] {
        let id: IntentId = id.parse().unwrap();
        let row = world.engine.observe(id).await.unwrap().unwrap();
        assert_eq!((row.state, row.attempts), (State::Queued, 1));
    }
}

#[tokio::test]
async fn a_start_removes_the_messages_of_test_agents_if_the_setting_says_so() {
    let (world, _, _) = bus_world(|settings| settings.bus.rate_per_minute = 100).await;
    let mut kept = Vec::new();
    let mut removed = Vec::new();
    for (nonce, from, to) in [
        (
            "n-1",
            "alice@acme.beam.directory",
            "bob@acme.beam.directory",
        ),
        (
            "n-2",
            "alice@test.beam.directory",
            "bob@acme.beam.directory",
        ),
        (
            "n-3",
            "alice@acme.beam.directory",
            "bob@demo.beam.directory",
        ),
        (
            "n-4",
            "test@acme.beam.directory",
            "demo@acme.beam.directory",
        ),
    ] {
        let mut body = message(nonce);
        (body["from"], body["to"]) = (json!(from), json!(to));
        let sent = world.send(&body).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        let id = sent.json()["message_id"].as_str().unwrap().to_owned();
        let is_test = nonce == "n-2" || nonce == "n-3";
        if is_test { &mut removed } else { &mut kept }.push(id);
    }
    assert_eq!(world.beam.remove_test_messages().await.unwrap(), 0);
    let ledger = world.ledger();
    drop(world);
    let clean = |settings: &mut consign_beam::settings::BeamSettings| {
        bus_settings(settings);
        settings.bus.clean_test_data = true;
    };
    let world = World::restarted(ledger, "start-2", clean).await;
    assert_eq!(world.beam.remove_test_messages().await.unwrap(), 2);
    let history = world.get("/v1/beam/history").await.json();
    let mut ids: Vec<&str> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["id"].as_str().unwrap())
        .collect();
    ids.reverse();
    assert_eq!(ids, kept);
    assert!(removed.iter().all(|id| !ids.contains(&id.as_str())));
}
