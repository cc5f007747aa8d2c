//! Failed deliveries and the retry worker.

use std::time::Duration;

use consign_beam::frame::IntentFrame;
use consign_beam::signed_text::verify_intent;
use consign_beam::text;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::retry::{Backoff, key_entropy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::bus::{answer_all, bus_world, message};
use crate::world::{Identity, World};

impl World {
    /// Lets the worker attempt what is due, until it finds something or ten seconds are over.
    pub(crate) async fn retry(&self) -> usize {
        for _ in 0..200 {
            let attempted = self.beam.retry_due_messages().await.unwrap();
            if attempted > 0 {
                return attempted;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        0
    }
}

#[tokio::test]
async fn be_028_be_029_an_offline_recipient_queues_the_message_by_the_schedule() {
    let (world, _, _) = bus_world(|settings| settings.bus.retry_second_us = SECOND_US).await;
    for (nonce, delay_s) in [("bus-1", 34), ("bus-off", 32), ("retry-nonce-1", 28)] {
        let sent = world.send(&message(nonce)).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        let sent = sent.json();
        assert_eq!(sent["status"], "queued", "{sent}");
        assert_eq!(
            (&sent["error"], &sent["error_code"]),
            (&json!("agent_offline"), &json!("OFFLINE"))
        );
        assert_eq!(sent["retry_count"], 1);
        let schedule = Backoff::Bus {
            second_us: SECOND_US,
        };
        let delay_us = schedule.delay_us(1, key_entropy(nonce, 1));
        assert_eq!(delay_us / SECOND_US, delay_s);
        let delay = Micros(delay_us).seconds();
        let next = sent["next_retry_at"].as_f64().unwrap();
        let wait = next - sent["created_at"].as_f64().unwrap();
        assert!((wait - delay).abs() < 0.001, "{nonce}: {wait}");
        let stored = world.stored(sent["message_id"].as_str().unwrap()).await;
        assert_eq!(stored["next_retry_at"], sent["next_retry_at"]);
        assert_eq!(
            (&stored["error"], &stored["retry_count"]),
            (&json!("agent_offline"), &json!(1))
        );
    }
    assert_eq!(
        world.beam.retry_due_messages().await.unwrap(),
        0,
        "none is due"
    );
}

#[tokio::test]
async fn be_007_be_008_be_030_five_attempts_and_then_a_dead_letter() {
    let (world, _, _) = bus_world(|_| ()).await;
    let sent = world.send(&message("n-1")).await.json();
    let id = sent["message_id"].as_str().unwrap();
    for attempt in 2..=5 {
        assert_eq!(world.retry().await, 1);
        let stored = world.stored(id).await;
        let expected = if attempt < 5 { "queued" } else { "dead_letter" };
        assert_eq!(stored["status"], expected, "{attempt}: {stored}");
        let retries = if attempt < 5 { attempt } else { 4 };
        assert_eq!(stored["retry_count"], retries, "{attempt}");
    }
    let stored = world.stored(id).await;
    assert_eq!(stored["error"], "agent_offline");
    assert!(
        stored["failed_at"].is_f64() && stored["next_retry_at"].is_null(),
        "{stored}"
    );
    let mut walk = vec!["received", "dispatched"];
    walk.extend(["queued", "dispatched"].repeat(4));
    walk.push("dead_letter");
    assert_eq!(world.walk(id).await, walk);
    // The worker never takes it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.beam.retry_due_messages().await.unwrap(), 0);
    assert_eq!(world.walk(id).await, walk);
}

#[tokio::test]
async fn be_033_a_retry_delivers_once_the_recipient_connects() {
    let (world, _, bob) = bus_world(|settings| {
        settings.bus.retry_interval = Duration::from_millis(50);
        // The first retry is due after a third of a second.
        settings.bus.retry_second_us = 10_000;
    })
    .await;
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "queued", "{sent}");
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let frame = frames.recv().await.unwrap();
    assert_eq!(frame["nonce"], "n-1");
    let path = format!("/v1/beam/poll?agent={}&wait=10", bob.beam_id);
    let polled = world.get(&path).await.json();
    assert_eq!(polled["messages"][0]["id"], sent["message_id"], "{polled}");
    let stored = world.stored(sent["message_id"].as_str().unwrap()).await;
    assert!(
        stored["error"].is_null() && stored["next_retry_at"].is_null(),
        "{stored}"
    );
    assert_eq!(stored["retry_count"], 1);
}

#[tokio::test]
async fn be_032_the_worker_takes_ten_by_priority_and_then_age() {
    let (world, _, bob) = bus_world(|_| ()).await;
    for number in 0..12 {
        let mut body = message(&format!("n-{number}"));
        body["priority"] = json!(number % 4);
        assert_eq!(world.send(&body).await.json()["status"], "queued");
    }
    // All of them are due.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut frames = answer_all(world.connect(&bob.beam_id).await, bob);
    assert_eq!(world.retry().await, 10);
    let mut order = Vec::new();
    while let Ok(frame) = frames.try_recv() {
        order.push(frame["nonce"].as_str().unwrap().to_owned());
    }
    let expected = ["3", "7", "11", "2", "6", "10", "1", "5", "9"].map(|n| format!("n-{n}"));
    assert_eq!(order[..9], expected);
    assert_eq!(order.len(), 10);
    assert_eq!(world.retry().await, 2);
}

#[tokio::test]
async fn be_046_a_failure_of_the_application_is_retried_and_ends_as_a_dead_letter() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut socket = world.connect(&bob.beam_id).await;
    let recipient = bob.clone();
    let handled = tokio::spawn(async move {
        let intent = socket.next_json().await.unwrap();
        let nonce = intent["frame"]["nonce"].as_str().unwrap().to_owned();
        socket
            .send(&recipient.failure(&nonce, "OUT_OF_STOCK"))
            .await;
        socket
    });
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "queued", "{sent}");
    assert_eq!(
        (&sent["error"], &sent["error_code"]),
        (&json!("no"), &json!("OUT_OF_STOCK"))
    );
    // The directory repeats the stored failure: the recipient is not asked again.
    let _socket = handled.await.unwrap();
    for _ in 2..=5 {
        assert_eq!(world.retry().await, 1);
    }
    let stored = world.stored(sent["message_id"].as_str().unwrap()).await;
    assert_eq!(
        (&stored["status"], &stored["error"]),
        (&json!("dead_letter"), &json!("no"))
    );
}

/// A directory that answers with these statuses and bodies in turn, and passes on what it received.
async fn directory(answers: Vec<(u16, &'static str)>) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (received, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !is_complete(&request) {
                let mut piece = [0; 4_096];
                let read = stream.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..read]);
            }
            let _ = received.send(String::from_utf8(request).unwrap());
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, requests)
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let lengths = head.lines().filter_map(|line| line.split_once(": "));
    let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths
        .next()
        .is_some_and(|(_, length)| body.len() >= length.parse().unwrap())
}

#[tokio::test]
async fn be_031_a_retry_keeps_the_nonce_and_renews_time_and_signature() {
    let answers = vec![
        (503, r#"{"error":"agent_offline","errorCode":"OFFLINE"}"#),
        (429, "slow down"),
        (200, r#"{"success":true}"#),
    ];
    let (url, mut requests) = directory(answers).await;
    let (world, alice, _) = bus_world(|settings| {
        settings.bus.remote_directory = Some(url);
    })
    .await;
    let mut body = message("n-1");
    body["payload"] = json!({"z": 1, "message": "hi", "a": {"2": 1}});
    let sent = world.send(&body).await.json();
    assert_eq!(
        (&sent["status"], &sent["error_code"]),
        (&json!("queued"), &json!("OFFLINE"))
    );
    let id = sent["message_id"].as_str().unwrap();
    assert_eq!(world.retry().await, 1);
    assert_eq!(world.stored(id).await["error"], "HTTP 429: slow down");
    assert_eq!(world.retry().await, 1);
    assert_eq!(world.stored(id).await["status"], "delivered");
    let mut frames: Vec<Value> = Vec::new();
    for _ in 0..3 {
        let request = requests.recv().await.unwrap();
        assert!(
            request.starts_with("POST /intents/send HTTP/1.1\r\n"),
            "{request}"
        );
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let frame = IntentFrame::parse(text::parse(body.as_bytes()).unwrap()).unwrap();
        assert!(verify_intent(&frame, &alice.key().public_key()), "{body}");
        assert_eq!(frame.nonce(), "n-1");
        frames.push(serde_json::from_str(body).unwrap());
    }
    for pair in frames.windows(2) {
        assert_eq!(pair[0]["payload"], pair[1]["payload"]);
        assert_ne!(pair[0]["timestamp"], pair[1]["timestamp"]);
        assert_ne!(pair[0]["signature"], pair[1]["signature"]);
    }
}

#[tokio::test]
async fn be_034_a_directory_that_cannot_be_reached_is_tried_again() {
    let (world, _, _) = bus_world(|settings| {
        settings.bus.remote_directory = Some("http://127.0.0.1:1".to_owned());
    })
    .await;
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(
        (&sent["status"], &sent["error_code"]),
        (&json!("queued"), &json!("DELIVERY_FAILED"))
    );
    assert!(
        sent["error"]
            .as_str()
            .unwrap()
            .starts_with("Connection error: "),
        "{sent}"
    );
}

#[tokio::test]
async fn be_027_a_sender_without_an_identity_is_refused_by_the_directory() {
    let (world, _, _) = bus_world(|settings| settings.bus.identities.clear()).await;
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "dead_letter", "{sent}");
    assert_eq!(sent["error_code"], "INVALID_INTENT");
    assert_eq!(sent["error"], "Signature verification failed");
}

#[tokio::test]
async fn a_recipient_that_does_not_answer_does_not_delay_the_messages_of_others() {
    let (world, alice, bob) = bus_world(|_| ()).await;
    let carol = Identity::new("carol@acme.beam.directory", 3);
    world.add_agent(&carol).await;
    let intent = "conversation.message";
    world.allow(&carol.beam_id, intent, "*").await;
    for number in 0..4 {
        world.send(&message(&format!("n-{number}"))).await;
    }
    let mut to_carol = message("n-carol");
    to_carol["to"] = json!(carol.beam_id);
    let sent = world.send(&to_carol).await.json();
    let id = sent["message_id"].as_str().unwrap().to_owned();
    // Bob is connected and never answers.
    let _silent = world.connect(&bob.beam_id).await;
    let _frames = answer_all(world.connect(&carol.beam_id).await, carol);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = std::time::Instant::now();
    let beam = world.beam.clone();
    let tick = tokio::spawn(async move { beam.retry_due_messages().await.unwrap() });
    while world.stored(&id).await["status"] != "delivered" {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{}",
            alice.beam_id
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tick.abort();
}
