//! Reads of the bus: poll, history, dead letters, statistics and events.

use std::time::Duration;

use consign_engine::{MessageFilter, MessagesOf, SeqPage};
use consign_kernel::command::{Command, Purge, Restore};
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bus::{answer_all, bus_world, message};
use crate::world::World;

impl World {
    async fn nonces(&self, path: &str) -> Vec<String> {
        let list = self.get(path).await.json();
        let messages = list["messages"].as_array().unwrap();
        assert_eq!(list["count"], messages.len());
        let nonce = |message: &Value| message["nonce"].as_str().unwrap().to_owned();
        messages.iter().map(nonce).collect()
    }
}

#[tokio::test]
async fn be_035_a_poll_shows_delivered_messages_and_changes_nothing() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let agent = &bob.beam_id;
    let missing = world.get("/v1/beam/poll").await;
    assert_eq!(missing.error(), (400, "MISSING_AGENT".to_owned()));
    assert_eq!(missing.json()["error"], "agent query parameter is required");
    let queued = world.send(&message("n-queued")).await.json();
    let mut frames = answer_all(world.connect(agent).await, bob.clone());
    let mut sent = Vec::new();
    for number in 0..103 {
        let mut body = message(&format!("n-{number}"));
        body["trace_id"] = json!("t-1");
        sent.push(world.send(&body).await.json());
        frames.recv().await.unwrap();
    }
    let poll = async |rest: &str| {
        let answer = world
            .get(&format!("/v1/beam/poll?agent={agent}{rest}"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    let first = poll("").await;
    assert_eq!(first["count"], 10);
    let ids = |list: &Value| -> Vec<Value> {
        let messages = list["messages"].as_array().unwrap();
        messages
            .iter()
            .map(|message| message["id"].clone())
            .collect()
    };
    let expected: Vec<Value> = sent.iter().map(|sent| sent["message_id"].clone()).collect();
    assert_eq!(ids(&first), expected[..10]);
    let shown = first["messages"][0].as_object().unwrap();
    let mut keys: Vec<&str> = shown.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let fields = [
        "created_at",
        "delivered_at",
        "id",
        "intent",
        "payload",
        "priority",
        "sender",
        "trace_id",
    ];
    assert_eq!(keys, fields);
    assert_eq!(
        (&shown["trace_id"], &shown["payload"]),
        (&json!("t-1"), &json!({"message": "hello"}))
    );
    assert_eq!(poll("").await, first, "a poll changes nothing");
    for default in ["&limit=abc", "&limit=0", "&limit=-1"] {
        assert_eq!(poll(default).await["count"], 10, "{default}");
    }
    for most in ["&limit=1000", "&limit=101", "&limit=100"] {
        let list = poll(most).await;
        assert_eq!(list["count"], 100, "{most}");
        assert_eq!(ids(&list), expected[..100], "{most}");
    }
    assert_eq!(poll("&limit=99").await["count"], 99);
    // Later than the given time, not at it.
    let since = format!("&since={}", sent[9]["created_at"]);
    assert_eq!(ids(&poll(&since).await), expected[10..20]);
    assert_eq!(poll("&since=0").await["count"], 10);
    assert_eq!(
        ids(&poll("&status=queued").await),
        [queued["message_id"].clone()]
    );
    assert_eq!(poll("&status=unheard").await["count"], 0);
    let ack = json!({"message_id": expected[0]});
    assert_eq!(world.post("/v1/beam/ack", &ack).await.status, 200);
    assert_eq!(ids(&poll("&status=acked").await), [expected[0].clone()]);
    assert_eq!(ids(&poll("&limit=2").await), expected[1..3]);
}

#[tokio::test]
async fn be_035_a_waiting_poll_returns_when_a_message_arrives() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let path = format!("/v1/beam/poll?agent={}&wait=20", bob.beam_id);
    let _frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let began = std::time::Instant::now();
    let body = message("n-1");
    let send = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.send(&body).await
    };
    let (polled, sent) = tokio::join!(world.get(&path), send);
    let waited = began.elapsed();
    assert_eq!(
        polled.json()["messages"][0]["id"],
        sent.json()["message_id"]
    );
    assert!(
        waited >= Duration::from_millis(300) && waited < Duration::from_secs(4),
        "{waited:?}"
    );
    // Without a message it ends in time.
    let nobody = world
        .get("/v1/beam/poll?agent=nobody@beam.directory&wait=0.3")
        .await;
    assert_eq!(nobody.json()["count"], 0);
}

#[tokio::test]
async fn be_039_history_is_filtered_and_newest_first() {
    let (world, alice, bob) = bus_world(|_| ()).await;
    world
        .allow(&alice.beam_id, "conversation.message", "*")
        .await;
    let mut times = Vec::new();
    for number in 0..4 {
        let mut body = message(&format!("n-{number}"));
        if number == 2 {
            body["to"] = json!(alice.beam_id);
            body["from"] = json!(bob.beam_id);
        }
        if number == 3 {
            body["intent"] = json!("payment.status_check");
            body["payload"] = json!({});
        }
        let sent = world.send(&body).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        times.push(sent.json()["created_at"].clone());
    }
    let history = async |query: &str| world.nonces(&format!("/v1/beam/history{query}")).await;
    assert_eq!(history("").await, ["n-3", "n-2", "n-1", "n-0"]);
    assert_eq!(history("?limit=2").await, ["n-3", "n-2"]);
    assert_eq!(history("?limit=abc").await.len(), 4);
    assert_eq!(history(&format!("?sender={}", bob.beam_id)).await, ["n-2"]);
    assert_eq!(
        history(&format!("?recipient={}", alice.beam_id)).await,
        ["n-2"]
    );
    assert_eq!(history("?intent=payment.status_check").await, ["n-3"]);
    assert_eq!(history("?status=queued").await, ["n-1", "n-0"]);
    assert_eq!(history("?status=dead_letter").await, ["n-3", "n-2"]);
    assert!(history("?status=unheard").await.is_empty());
    let both = format!("?sender={}&recipient={}", alice.beam_id, bob.beam_id);
    assert_eq!(history(&both).await, ["n-3", "n-1", "n-0"]);
    // Both ends of the interval count.
    assert_eq!(
        history(&format!("?since={}", times[2])).await,
        ["n-3", "n-2"]
    );
    assert_eq!(
        history(&format!("?until={}", times[1])).await,
        ["n-1", "n-0"]
    );
    let interval = format!("?since={}&until={}", times[1], times[2]);
    assert_eq!(history(&interval).await, ["n-2", "n-1"]);
    assert!(history("?until=1000").await.is_empty());
}

#[tokio::test]
async fn be_040_statistics_add_up() {
    let (world, _, bob) = bus_world(|_| ()).await;
    for nonce in ["q-1", "q-2"] {
        world.send(&message(nonce)).await;
    }
    let mut denied = message("d-1");
    denied["intent"] = json!("payment.status_check");
    world.send(&denied).await;
    let _frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let mut ids = Vec::new();
    for nonce in ["a-1", "a-2", "a-3"] {
        let sent = world.send(&message(nonce)).await.json();
        ids.push(sent["message_id"].clone());
    }
    world
        .post("/v1/beam/ack", &json!({"message_id": ids[0]}))
        .await;
    let failed = json!({"message_id": ids[1], "status": "failed"});
    world.post("/v1/beam/ack", &failed).await;
    // A directory's own intents are not counted.
    let stats = world.get("/v1/beam/stats").await.json();
    assert_eq!(
        stats,
        json!({
            "total": 6, "queued": 2, "received": 0, "dispatched": 0, "delivered": 1, "acked": 1,
            "failed": 1, "dead_letter": 1, "last_24h": 6,
            "by_agent": {
                "alice@acme.beam.directory": {"sent": 6, "received": 0},
                "bob@acme.beam.directory": {"sent": 0, "received": 6},
            },
        })
    );
}

#[tokio::test]
async fn be_040_removed_messages_do_not_count_and_old_ones_not_for_the_last_day() {
    let (world, ..) = bus_world(|_| ()).await;
    world.send(&message("q-1")).await;
    let newest = MessageFilter {
        profile: ProfileId::BeamBus,
        of: MessagesOf::All,
        page: SeqPage::NEWEST,
        limit: 1,
    };
    let sent = world.engine.messages(newest).await.unwrap().remove(0);
    let purge = Command::Purge(Purge {
        face: Face::Beam,
        namespace: None,
        after: Seq(0),
        limit: 100,
    });
    world.engine.apply(None, purge).await.unwrap();
    let stats = world.get("/v1/beam/stats").await.json();
    assert_eq!(
        (&stats["total"], &stats["last_24h"], &stats["by_agent"]),
        (&json!(0), &json!(0), &json!({}))
    );
    let minute_us = 60 * SECOND_US;
    let ages = [
        2 * DAY_US,
        DAY_US + 5 * minute_us,
        DAY_US + minute_us,
        DAY_US - minute_us,
        DAY_US - 5 * minute_us,
        DAY_US / 2,
    ];
    for (number, age_us) in (1..).zip(ages) {
        let old = Intent {
            id: IntentId([number; 16]),
            created_at: world.engine.now().minus(age_us),
            ..sent.clone()
        };
        let restore = Command::Restore(Box::new(Restore::bare(old)));
        world.engine.apply(None, restore).await.unwrap();
    }
    world.send(&message("q-2")).await;
    let stats = world.get("/v1/beam/stats").await.json();
    assert_eq!(
        (&stats["total"], &stats["last_24h"]),
        (&json!(7), &json!(4)),
        "{stats}"
    );
    assert_eq!(stats["by_agent"]["alice@acme.beam.directory"]["sent"], 7);
}

#[tokio::test]
async fn be_041_dead_letters_are_filtered_and_the_last_ones_come_first() {
    let (world, alice, bob) = bus_world(|settings| settings.bus.retry_second_us = SECOND_US).await;
    let mut ids = Vec::new();
    for (nonce, to, intent) in [
        ("n-0", &bob, "payment.status_check"),
        ("n-1", &bob, "sales.pipeline_summary"),
        ("n-2", &alice, "payment.status_check"),
    ] {
        let mut body = message(nonce);
        body["to"] = json!(to.beam_id);
        body["intent"] = json!(intent);
        body["payload"] = json!({});
        let sent = world.send(&body).await.json();
        assert_eq!(sent["status"], "dead_letter", "{sent}");
        ids.push(sent["message_id"].as_str().unwrap().to_owned());
    }
    world.send(&message("queued")).await;
    let list = async |query: &str| world.nonces(&format!("/v1/beam/dead-letter{query}")).await;
    assert_eq!(list("").await, ["n-2", "n-1", "n-0"]);
    // The order is that of their ends.
    let path = format!("/v1/beam/dead-letter/{}/requeue", ids[0]);
    world.request("POST", &path, &[], None).await;
    assert_eq!(list("").await, ["n-0", "n-2", "n-1"]);
    assert_eq!(list("?intent=payment.status_check").await, ["n-0", "n-2"]);
    assert_eq!(
        list(&format!("?sender={}", alice.beam_id)).await,
        ["n-0", "n-2", "n-1"]
    );
    assert_eq!(
        list(&format!("?recipient={}", bob.beam_id)).await,
        ["n-0", "n-1"]
    );
    assert_eq!(
        list(&format!("?recipient={}&limit=1", bob.beam_id)).await,
        ["n-0"]
    );
    assert_eq!(list("?limit=2").await, ["n-0", "n-2"]);
    assert!(list("?sender=nobody").await.is_empty());
    let shown = world.get("/v1/beam/dead-letter?limit=1").await.json();
    assert_eq!(shown["messages"][0], world.stored(&ids[0]).await);
}

#[tokio::test]
async fn an_event_stream_reports_the_states_of_an_agents_messages() {
    let (world, _, bob) = bus_world(|_| ()).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let request = format!(
        "GET /v1/beam/events?agent={} HTTP/1.1\r\nhost: {}\r\n\r\n",
        bob.beam_id, world.address
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    read_until(&mut stream, &mut seen, ": connected").await;
    assert!(seen.contains("content-type: text/event-stream"), "{seen}");
    let _frames = answer_all(world.connect(&bob.beam_id).await, bob.clone());
    let sent = world.send(&message("n-1")).await.json();
    let id = sent["message_id"].as_str().unwrap();
    read_until(&mut stream, &mut seen, "event: delivered").await;
    world.post("/v1/beam/ack", &json!({"message_id": id})).await;
    read_until(&mut stream, &mut seen, "event: acked").await;
    read_until(&mut stream, &mut seen, r#""status":"acked""#).await;
    let names: Vec<&str> = seen
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(names, ["received", "dispatched", "delivered", "acked"]);
    let data = seen.lines().filter_map(|line| line.strip_prefix("data: "));
    for data in data {
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["message_id"], id);
        assert!(data["at"].is_f64(), "{data}");
    }
    // A reader continues after the last id that it saw.
    let ids: Vec<&str> = seen
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .collect();
    let second_last = ids[ids.len() - 2];
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let request = request.replace(
        "\r\n\r\n",
        &format!("\r\nlast-event-id: {second_last}\r\n\r\n"),
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    read_until(&mut stream, &mut seen, r#""status":"acked""#).await;
    assert!(!seen.contains("event: delivered"), "{seen}");
    let missing = world.get("/v1/beam/events").await;
    assert_eq!(missing.error(), (400, "MISSING_AGENT".to_owned()));
}

async fn read_until(stream: &mut TcpStream, seen: &mut String, text: &str) {
    while !seen.contains(text) {
        let mut piece = [0; 4_096];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut piece));
        let read = read
            .await
            .unwrap_or_else(|_| panic!("{text} is missing: {seen}"))
            .unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}
