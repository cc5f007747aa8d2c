//! Two servers on one ledger: an agent may be connected to either.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_beam::directory::records::BeamPresence;
use consign_beam::outbound::{AddressGuard, AllowedTargets};
use consign_kernel::record::Kind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::bus::{bus_settings, message};
use crate::world::{Identity, TestSocket, World};

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
async fn be_092_an_agent_that_left_the_other_node_is_offline() {
    // Until the other node has noticed it, an intent waits for a result.
    let timeout = Duration::from_millis(200);
    let here = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let there = here.second(|_| ()).await.unwrap();
    let (alice, bob) = here.alice_and_bob().await;
    let socket = there.connect(&bob.beam_id).await;
    drop(socket);
    // Then it is offline for good. The first such answer may still be that of the other node.
    let mut codes = Vec::new();
    for number in 0..20 {
        let frame = alice.message(&here, &bob, &format!("n-{number}"));
        let answer = here.post("/intents/send", &frame).await;
        codes.push(answer.error().1);
        if codes.ends_with(&["OFFLINE", "OFFLINE", "OFFLINE"].map(str::to_owned)) {
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

#[tokio::test]
async fn a_result_for_a_node_that_still_waits_overrules_the_timeout_of_the_senders_node() {
    let timeout = Duration::from_millis(300);
    let here = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    // Its relay waits for the result long after the sender's node has given up.
    let patient = Duration::from_mins(1);
    let there = here
        .second(|settings| settings.result_timeout = Some(patient))
        .await
        .unwrap();
    let (alice, bob) = here.alice_and_bob().await;
    let mut socket = there.connect(&bob.beam_id).await;
    let frame = alice.message(&here, &bob, "n-1");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    here.until_status("n-1", "failed").await;
    socket.answer(&bob, &json!({"message": "late"})).await;
    here.until_status("n-1", "acked").await;
    for world in [&here, &there] {
        let again = world.post("/intents/send", &frame).await;
        assert_eq!(again.json()["payload"]["message"], "late");
    }
    let trace = here.trace("n-1").await;
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    let (before, after) = stages.split_at(stages.len() - 5);
    assert_eq!(before.last(), Some(&"delivered"), "{stages:?}");
    assert_eq!(
        after,
        ["failed", "queued", "dispatched", "delivered", "acked"]
    );
    let details = &trace.last().unwrap().1;
    assert_eq!(details["lateResult"], true, "{details}");
    assert_eq!(details["recoveredAfterFailure"], true, "{details}");
}

#[tokio::test]
async fn a_connection_that_could_not_be_recorded_is_recorded_later() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    there.obstacles.refuse_records(Some(Kind::BeamPresence));
    let mut socket = there.connect(&bob.beam_id).await;
    assert!(there.obstacles.met() > 0, "nothing was refused");
    let frame = alice.message(&here, &bob, "n-unknown");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    there.obstacles.refuse_records(None);
    until_presence_of(&here, &bob, 2).await;
    let frame = alice.message(&here, &bob, "n-known");
    let (answer, ()) = tokio::join!(
        here.post("/intents/send", &frame),
        answer_once(&mut socket, &bob, "from there"),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    // The agent moves: its old node does not take it back.
    let mut moved = here.connect(&bob.beam_id).await;
    assert_eq!(socket.closed().await.0, 1001);
    let frame = alice.message(&there, &bob, "n-moved");
    let (answer, ()) = tokio::join!(
        there.post("/intents/send", &frame),
        answer_once(&mut moved, &bob, "from here"),
    );
    assert_eq!(answer.json()["payload"]["message"], "from here");
}

#[tokio::test]
async fn a_record_that_could_not_be_removed_is_removed_later() {
    let timeout = Duration::from_millis(300);
    let here = World::with(|settings| settings.result_timeout = Some(timeout)).await;
    let there = here.second(|_| ()).await.unwrap();
    let (alice, bob) = here.alice_and_bob().await;
    let socket = there.connect(&bob.beam_id).await;
    there.obstacles.refuse_records(Some(Kind::BeamPresence));
    let refused_before = there.obstacles.met();
    drop(socket);
    while there.obstacles.met() == refused_before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let frame = alice.message(&here, &bob, "n-phantom");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (504, "TIMEOUT".to_owned()));
    there.obstacles.refuse_records(None);
    until_presence_of(&here, &bob, 0).await;
    let frame = alice.message(&here, &bob, "n-absent");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
}

/// Waits until the record of an agent names this node; zero is none.
async fn until_presence_of(world: &World, agent: &Identity, expected: i64) {
    let node = async || {
        let key = BeamPresence::key(&agent.beam_id);
        let found = world.engine.load::<BeamPresence>(key).await.unwrap();
        found.map_or(0, |found| found.value.node)
    };
    for _ in 0..150 {
        if node().await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the agent is recorded at node {}", node().await);
}

/// The next statuses of an intent in the feed.
async fn statuses(feed: &mut TestSocket, nonce: &str, count: usize) -> Vec<String> {
    let mut statuses = Vec::new();
    while statuses.len() < count {
        let event = feed.next_json().await.unwrap();
        assert_eq!(event["type"], "intent_feed", "{event}");
        let entry = &event["entry"];
        assert_eq!(entry["nonce"], nonce, "{event}");
        let has_ended = entry["status"] == "acked";
        assert_eq!(entry["completedAt"].is_string(), has_ended, "{event}");
        assert_eq!(
            entry["roundTripLatencyMs"].is_number(),
            has_ended,
            "{event}"
        );
        statuses.push(entry["status"].as_str().unwrap().to_owned());
    }
    statuses
}

async fn feed(world: &World) -> TestSocket {
    let mut feed = world.open("/ws?feed=intents", &[]).await.unwrap();
    let hello = feed.next_json().await.unwrap();
    assert_eq!(hello["type"], "feed_connected");
    feed
}

#[tokio::test]
async fn be_117_the_feed_of_a_node_shows_what_all_nodes_relay() {
    let (here, there) = pair().await;
    let (alice, bob) = here.alice_and_bob().await;
    let mut socket = there.connect(&bob.beam_id).await;
    let mut feeds = [feed(&here).await, feed(&there).await];
    // Relayed by one node alone, and handed from one to the other.
    for (nonce, sender) in [("n-there", &there), ("n-both", &here)] {
        let frame = alice.message(sender, &bob, nonce);
        let (answer, ()) = tokio::join!(
            sender.post("/intents/send", &frame),
            answer_once(&mut socket, &bob, "hi"),
        );
        assert_eq!(answer.status, 200, "{}", answer.text);
        for feed in &mut feeds {
            let steps = statuses(feed, nonce, 3).await;
            assert_eq!(steps, ["dispatched", "delivered", "acked"], "{nonce}");
        }
    }
    // Nothing is shown twice, also when facts are read once more.
    for feed in &mut feeds {
        let more = tokio::time::timeout(Duration::from_millis(1_200), feed.next_json()).await;
        assert!(more.is_err(), "{more:?}");
    }
    // The task that reads for a node ends with its last reader, and a later reader starts another one.
    let [first, _] = feeds;
    drop(first);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let mut again = feed(&here).await;
    let frame = alice.message(&there, &bob, "n-again");
    let (answer, ()) = tokio::join!(
        there.post("/intents/send", &frame),
        answer_once(&mut socket, &bob, "hi"),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    let steps = statuses(&mut again, "n-again", 3).await;
    assert_eq!(steps, ["dispatched", "delivered", "acked"]);
}

#[tokio::test]
async fn an_agent_of_another_node_is_shown_as_connected() {
    let (here, there) = pair().await;
    let (_, bob) = here.alice_and_bob().await;
    here.change_agent(&bob.beam_id, |agent| agent.visibility = "public".to_owned())
        .await;
    let path = format!("/agents/{}", bob.beam_id);
    let shown = async || {
        let one = here.get(&path).await.json();
        let list = here.get("/directory/agents").await.json();
        let health = here.get("/health").await.json();
        (
            one["connected"].as_bool().unwrap(),
            list["agents"][0]["connected"].as_bool().unwrap(),
            health["connectedAgents"].as_u64().unwrap(),
        )
    };
    let until = async |expected: (bool, bool, u64)| {
        for _ in 0..150 {
            if shown().await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?} never became {expected:?}", shown().await);
    };
    assert_eq!(shown().await, (false, false, 0));
    let socket = there.connect(&bob.beam_id).await;
    let one = here.get(&path).await.json();
    assert_eq!(one["connected"], true, "a single agent is read at once");
    until((true, true, 1)).await;
    drop(socket);
    until((false, false, 0)).await;
}

/// The address of an endpoint that answers every request with 503.
async fn broken_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 8_192];
            let _ = stream.read(&mut head).await;
            let _ = stream
                .write_all(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
        }
    });
    address
}

#[tokio::test]
async fn be_101_an_agent_whose_endpoint_fails_is_reached_over_its_socket_at_the_other_node() {
    let endpoint = broken_endpoint().await;
    let allowed = AllowedTargets::parse(&endpoint).unwrap();
    let here = World::with(|settings| settings.guard = AddressGuard::new(allowed)).await;
    let there = here.second(|_| ()).await.unwrap();
    let (alice, bob) = here.alice_and_bob().await;
    let url = format!("http://{endpoint}/");
    here.change_agent(&bob.beam_id, |agent| {
        agent.http_endpoint = Some(url.clone());
    })
    .await;
    let frame = alice.message(&here, &bob, "n-absent");
    let answer = here.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    let mut socket = there.connect(&bob.beam_id).await;
    let frame = alice.message(&here, &bob, "n-1");
    let (answer, ()) = tokio::join!(
        here.post("/intents/send", &frame),
        answer_once(&mut socket, &bob, "from there"),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["payload"]["message"], "from there");
    let trace = here.trace("n-1").await;
    let fallback = |(_, details): &&(&str, serde_json::Value)| details["outcome"] == "fallback";
    assert_eq!(trace.iter().filter(fallback).count(), 1, "{trace:?}");
    let stages: Vec<&str> = trace.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(
        stages[3..],
        [
            "dispatched",
            "queued",
            "dispatched",
            "dispatched",
            "delivered",
            "acked"
        ]
    );
}

/// Runs a server until it is ready, and ends it as a kill does: none of its tasks takes another step.
async fn run_and_kill<T: Send + 'static>(server: impl Future<Output = T> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    runtime.spawn(async move {
        let _kept = server.await;
        let _ = ready.send(());
        std::future::pending::<()>().await;
    });
    let began = is_ready.await;
    runtime.shutdown_background();
    began.expect("the server ran");
}

#[tokio::test]
async fn be_008_what_a_killed_node_had_dispatched_goes_on_at_the_other_node() {
    let here = World::with(bus_settings).await;
    let (_, bob) = here.alice_and_bob().await;
    // The other node attempts the message, its recipient does not answer, and the node ends.
    let ledger = here.ledger();
    run_and_kill(async move {
        let there = Arc::new(World::beside(ledger, bus_settings).await);
        let mut silent = there.connect(&Identity::bob().beam_id).await;
        let sending = Arc::clone(&there);
        tokio::spawn(async move { sending.send(&message("n-1")).await });
        silent.next_json().await.unwrap();
        there.until_status("n-1", "delivered").await;
        (there, silent)
    })
    .await;
    let history = here.get("/v1/beam/history").await.json();
    let id = history["messages"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(here.stored(&id).await["status"], "dispatched");
    let began = Instant::now();
    // The lease of the attempt would last 45 seconds.
    let taken = async {
        loop {
            let message = here.stored(&id).await;
            if message["status"] != "dispatched" {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let taken = tokio::time::timeout(Duration::from_secs(20), taken).await;
    let taken = taken.expect("the other node takes it over");
    assert!(began.elapsed() < Duration::from_secs(20));
    // An interrupted attempt does not count; the retry worker may have made another one meanwhile.
    assert!(taken["retry_count"].as_u64().unwrap() <= 1, "{taken}");
    let walk = here.walk(&id).await;
    assert_eq!(walk[..3], ["received", "dispatched", "queued"], "{walk:?}");
    // The recipient answers what it got before, over the node that is left.
    let mut socket = here.connect(&bob.beam_id).await;
    socket
        .send(&bob.result("n-1", &json!({"message": "late"})))
        .await;
    here.until_status("n-1", "acked").await;
    for _ in 0..200 {
        if here.stored(&id).await["status"] == "delivered" {
            return;
        }
        here.beam.retry_due_messages().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", here.stored(&id).await);
}

#[tokio::test]
async fn be_154_an_intent_that_waits_for_a_killed_node_ends_with_its_time() {
    let timeout = Duration::from_secs(3);
    let here = World::with(|settings| settings.recovery_sweep = Duration::from_millis(50)).await;
    let (alice, bob) = here.alice_and_bob().await;
    let ledger = here.ledger();
    // A node that does not serve the lane of its agent: a third one, which has already gone.
    here.pretend_connected(&bob.beam_id).await;
    let sent = Arc::new(tokio::sync::Mutex::new(None));
    let frame = Arc::clone(&sent);
    run_and_kill(async move {
        let there = World::beside(ledger, |settings| settings.result_timeout = Some(timeout)).await;
        let there = Arc::new(there);
        let message = alice.message(&there, &bob, "n-1");
        *frame.lock().await = Some(message.clone());
        let sending = Arc::clone(&there);
        tokio::spawn(async move { sending.post("/intents/send", &message).await });
        there.until_status("n-1", "queued").await;
        there
    })
    .await;
    for _ in 0..40 {
        if here.trace("n-1").await.last().unwrap().0 == "failed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let trace = here.trace("n-1").await;
    let (stage, details) = trace.last().unwrap();
    assert_eq!(*stage, "failed", "{trace:?}");
    assert_eq!(details["recoveryAction"], "timeout_without_waiter");
    assert_eq!(details["previousStatus"], "queued");
    // It may be sent again with its nonce.
    let frame = sent.lock().await.clone().unwrap();
    here.forget_connected(&Identity::bob().beam_id).await;
    let again = here.post("/intents/send", &frame).await;
    assert_eq!(again.error(), (503, "OFFLINE".to_owned()));
}
