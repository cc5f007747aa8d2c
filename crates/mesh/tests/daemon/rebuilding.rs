//! The inbox after `daemon recover --way rebuild`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_mesh::daemon::exclusive::StoppedDaemon;
use consign_mesh::daemon::recover::{REBUILD_FILE, RecoverWay, recover};
use consign_mesh::frame::TopicHistoryEntry;
use serde_json::json;

use crate::broker_double::BrokerDouble;
use crate::world::{Daemon, Home, key};

fn post(number: usize, bytes: usize, created_at: &str) -> TopicHistoryEntry {
    let body = format!("post {number} {}", "x".repeat(bytes));
    TopicHistoryEntry {
        id: format!("b-{number:04}"),
        sender_pubkey: key(2).public_key().to_string(),
        sender_member_id: "m-2".to_owned(),
        sender_name: "member-2".to_owned(),
        nonce: String::new(),
        ciphertext: BASE64_STANDARD.encode(body),
        body_version: 1,
        reply_to_id: None,
        created_at: created_at.to_owned(),
    }
}

/// A daemon that is subscribed to `alerts`, started after its inbox was lost.
async fn rebuilt(home: &Home, broker: &BrokerDouble, history: Vec<TopicHistoryEntry>) -> Daemon {
    home.up().await.down().await;
    let subscribed = json!({"schema_version": 1, "subscribed": ["alerts"], "known": {}});
    let file = home.folder().join("topic_subscriptions.json");
    std::fs::write(file, subscribed.to_string()).unwrap();
    let stopped = StoppedDaemon::lock(&home.folder()).unwrap();
    recover(&stopped, RecoverWay::Rebuild).unwrap();
    drop(stopped);
    broker.change(|behaviour| behaviour.history = history);
    let daemon = home.up().await;
    let is_done = |_: &BrokerDouble| !home.folder().join(REBUILD_FILE).exists();
    broker.until("the inbox is rebuilt", is_done).await;
    daemon
}

#[tokio::test]
async fn cm_130_a_rebuild_reads_the_topics_into_the_inbox_and_announces_nothing() {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let now = jiff::Timestamp::now().to_string();
    let mut history: Vec<_> = (1..=60)
        .rev()
        .map(|number| post(number, 10, &now))
        .collect();
    // Older than the inbox keeps.
    history.push(post(0, 10, "2020-01-01T00:00:00.000Z"));
    let daemon = rebuilt(&home, &broker, history).await;
    let answer = daemon.get("/v1/inbox?topic=alerts&limit=100").await.json();
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items.len(), 60);
    let has = |body: &str| items.iter().any(|item| item["body"] == body);
    assert!(has("post 60 xxxxxxxxxx") && has("post 1 xxxxxxxxxx"));
    assert_eq!(items[0]["sender_pubkey"], key(2).public_key().to_string());
    assert_eq!(home.logged("inbox_rebuilt")[0]["restored"], 60);
    assert!(broker.of_type("client_ack").is_empty());
    let metrics = daemon.get("/v1/metrics").await.text;
    let received = r#"cm_daemon_recv_total{mesh="home",kind="topic",from_type="peer"} 0"#;
    assert!(metrics.contains(received), "{metrics}");
    daemon.down().await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_asked_for_in_smaller_parts() {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let now = jiff::Timestamp::now().to_string();
    let posts = (1..=12).rev().map(|number| post(number, 5_500, &now));
    let daemon = rebuilt(&home, &broker, posts.collect()).await;
    let answer = daemon.get("/v1/inbox?topic=alerts").await.json();
    assert_eq!(answer["items"].as_array().unwrap().len(), 12);
    daemon.down().await;
}
