//! From a push of the broker to the inbox and the event stream.

use consign_mesh::body::CarriedBody;
use consign_mesh::frame::{PushFrame, RawJson};
use serde_json::{Value, json};

use crate::broker_double::BrokerDouble;
use crate::world::{Daemon, Home, MESH_ID, key};

async fn connected() -> (Home, BrokerDouble, Daemon) {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    (home, broker, daemon)
}

/// A message from the member with that seed, in clear.
pub(crate) fn clear(id: &str, seed: u8, body: &str) -> PushFrame {
    let carried = CarriedBody::clear(body.as_bytes());
    let mut push = PushFrame::system(
        MESH_ID,
        &format!("b-{id}"),
        "2026-01-01T00:00:00.000Z",
        "",
        None,
    );
    let sender = key(seed).public_key().to_string();
    push.subtype = None;
    push.event = None;
    push.sender_pubkey.clone_from(&sender);
    push.sender_member_pubkey = Some(sender);
    push.sender_name = Some(format!("member-{seed}"));
    "next".clone_into(&mut push.priority);
    push.client_message_id = Some(id.to_owned());
    push.nonce = carried.nonce;
    push.ciphertext = carried.ciphertext;
    push
}

pub(crate) fn direct(id: &str, seed: u8, body: &str) -> PushFrame {
    let to = key(1).public_key();
    let carried = CarriedBody::direct(body.as_bytes(), &key(seed), to, &[9; 24]).unwrap();
    PushFrame {
        nonce: carried.nonce,
        ciphertext: carried.ciphertext,
        ..clear(id, seed, body)
    }
}

pub(crate) async fn until_acked(broker: &BrokerDouble, count: usize) -> Vec<Value> {
    broker
        .until("acked", |broker| {
            broker.of_type("client_ack").len() >= count
        })
        .await;
    broker.of_type("client_ack")
}

async fn items(daemon: &Daemon, query: &str) -> Vec<Value> {
    let answer = daemon.get(&format!("/v1/inbox{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn cm_088_cm_097_a_message_is_opened_stored_acknowledged_and_announced() {
    let (home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    let push = PushFrame {
        meta: RawJson::parse(r#"{"z":1,"a":2}"#),
        reply_to_id: Some("r-1".to_owned()),
        ..direct("c-1", 2, "hello alice")
    };
    broker.push(push);
    let event = events.event("message").await;
    assert_eq!(event["body"], "hello alice");
    assert_eq!(event["client_message_id"], "c-1");
    assert_eq!(event["broker_message_id"], "b-c-1");
    assert_eq!(event["sender_name"], "member-2");
    assert_eq!(event["meta"], json!({"z": 1, "a": 2}));
    let acks = until_acked(&broker, 1).await;
    assert_eq!(acks[0]["clientMessageId"], "c-1");
    assert_eq!(acks[0]["brokerMessageId"], "b-c-1");
    let found = items(&daemon, "").await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["body"], "hello alice");
    assert_eq!(found[0]["meta"], r#"{"z":1,"a":2}"#);
    assert_eq!(found[0]["sender_pubkey"], key(2).public_key().to_string());
    assert_eq!(found[0]["reply_to_id"], "r-1");
    assert_eq!(found[0]["mesh"], "home");
    // A second delivery is acknowledged and not announced.
    broker.push(direct("c-1", 2, "hello alice"));
    broker.push(direct("c-2", 2, "the other"));
    until_acked(&broker, 3).await;
    let text = events.until("the other").await.to_owned();
    assert_eq!(text.matches("event: message").count(), 2, "{text}");
    assert_eq!(items(&daemon, "").await.len(), 2);
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains(r#"cm_daemon_dedupe_total{mesh="home",direction="in"} 1"#),
        "{metrics}"
    );
    drop(home);
    daemon.down().await;
}

#[tokio::test]
async fn the_id_of_another_sender_is_kept_under_the_brokers() {
    let (home, broker, daemon) = connected().await;
    broker.push(direct("c-1", 2, "first"));
    let second = PushFrame {
        message_id: "b-other".to_owned(),
        ..direct("c-1", 3, "second")
    };
    broker.push(second.clone());
    broker.push(second);
    until_acked(&broker, 3).await;
    let found = items(&daemon, "").await;
    let ids: Vec<&Value> = found
        .iter()
        .map(|item| &item["client_message_id"])
        .collect();
    assert_eq!(ids, ["b-other", "c-1"]);
    assert_eq!(home.logged("inbox_client_id_collision").len(), 1);
    daemon.down().await;
}

#[tokio::test]
async fn what_no_key_opens_is_kept_without_a_body() {
    let (_home, broker, daemon) = connected().await;
    let stranger = CarriedBody::direct(b"secret", &key(2), key(9).public_key(), &[9; 24]).unwrap();
    broker.push(PushFrame {
        nonce: stranger.nonce,
        ciphertext: stranger.ciphertext,
        ..clear("c-1", 2, "")
    });
    until_acked(&broker, 1).await;
    let found = items(&daemon, "").await;
    assert_eq!(found[0]["body"], Value::Null);
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains("cm_daemon_decrypt_stale_total 1"),
        "{metrics}"
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_098_malformed_frames_are_counted_and_change_nothing() {
    let (_home, broker, daemon) = connected().await;
    for text in [
        "{",
        "[]",
        r#"{"type":"push"}"#,
        r#"{"type":"push","messageId":7}"#,
        r#"{"type":"ack","queued":"yes"}"#,
    ] {
        broker.raw(text.to_owned());
    }
    broker.push(clear("c-1", 2, "still here"));
    until_acked(&broker, 1).await;
    assert_eq!(items(&daemon, "").await.len(), 1);
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains("cm_daemon_invalid_inbound_total 5"),
        "{metrics}"
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_034_the_inbox_is_filtered_and_newest_first() {
    let (_home, broker, daemon) = connected().await;
    for (number, seed) in [(1, 2), (2, 3), (3, 2)] {
        broker.push(PushFrame {
            topic: (number == 2).then(|| "alerts".to_owned()),
            ..clear(&format!("c-{number}"), seed, &format!("body {number}"))
        });
        until_acked(&broker, number).await;
    }
    let bodies = async |query: &str| -> Vec<String> {
        let found = items(&daemon, query).await;
        let bodies = found
            .iter()
            .map(|item| item["body"].as_str().unwrap().to_owned());
        bodies.collect()
    };
    assert_eq!(bodies("").await, ["body 3", "body 2", "body 1"]);
    assert_eq!(bodies("?limit=1").await, ["body 3"]);
    assert_eq!(bodies("?topic=alerts").await, ["body 2"]);
    assert_eq!(bodies("?topic=%23alerts").await, ["body 2"]);
    assert_eq!(bodies("?from=MEMBER-2").await, ["body 3", "body 1"]);
    let by_key = format!("?from={}", key(3).public_key());
    assert_eq!(bodies(&by_key).await, ["body 2"]);
    let second = items(&daemon, "").await[1]["received_at"].clone();
    let since = format!("?since={}", second.as_str().unwrap());
    assert!(bodies(&since).await.contains(&"body 3".to_owned()));
    assert!(
        !bodies("?since=2100-01-01T00:00:00Z")
            .await
            .contains(&"body 3".to_owned())
    );
    assert_eq!(daemon.get("/v1/inbox?since=yesterday").await.status, 400);
    assert_eq!(daemon.get("/v1/inbox?mesh=other").await.status, 404);
    let page = daemon.get("/v1/inbox?limit=2").await.json();
    let next = page["next"].as_str().unwrap().to_owned();
    assert_eq!(bodies(&format!("?limit=2&before={next}")).await, ["body 1"]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_099_old_messages_are_removed_at_the_start() {
    let (home, broker, daemon) = connected().await;
    broker.push(clear("old", 2, "old"));
    broker.push(clear("young", 2, "young"));
    until_acked(&broker, 2).await;
    daemon.down().await;
    let connection = rusqlite::Connection::open(home.folder().join("inbox.db")).unwrap();
    let day = 86_400_000_i64;
    connection
        .execute(
            "UPDATE inbox SET received_at = received_at - ?1 WHERE client_message_id = 'old'",
            [30 * day + 60_000],
        )
        .unwrap();
    drop(connection);
    let daemon = home.up().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while items(&daemon, "").await.len() != 1 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(items(&daemon, "").await[0]["body"], "young");
    daemon.down().await;
}

#[tokio::test]
async fn cm_117_events_of_the_broker_are_announced_but_not_our_own() {
    let (_home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    let event = |name: &str, data: Value| {
        broker.push(PushFrame::system(
            MESH_ID,
            "s",
            "2026-01-01T00:00:00.000Z",
            name,
            RawJson::parse(&data.to_string()),
        ));
    };
    let own = key(1).public_key().to_string();
    event(
        "member_keypair_rotated",
        json!({"member_id": "m-1", "new_pubkey": own}),
    );
    event("peer_joined", json!({"displayName": "bob", "pubkey": "k"}));
    event("peer_left", json!({"displayName": "bob", "pubkey": "k"}));
    event(
        "member_renamed",
        json!({"member_id": "m-2", "name": "robert"}),
    );
    let joined = events.event("peer_join").await;
    assert_eq!(
        (&joined["name"], &joined["pubkey"], &joined["event"]),
        (&json!("bob"), &json!("k"), &json!("peer_joined"))
    );
    events.event("peer_leave").await;
    let renamed = events.event("system").await;
    assert_eq!(renamed["event"], "member_renamed");
    assert!(renamed["ts"].is_string());
    let text = events.until("event: system").await;
    assert!(!text.contains("member_keypair_rotated"), "{text}");
    assert!(text.contains(": connected\n\n"), "{text}");
    assert!(text.contains("id: "), "{text}");
    assert_eq!(items(&daemon, "").await.len(), 0);
    daemon.down().await;
}

#[tokio::test]
async fn cm_127_the_end_of_the_own_membership_ends_the_daemon_with_5() {
    for (name, data) in [
        (
            "member_revoked",
            json!({"pubkey": key(1).public_key().to_string()}),
        ),
        ("keypair_revoked", json!({"member_id": "m-1"})),
    ] {
        let (_home, broker, daemon) = connected().await;
        let of_another = RawJson::parse(r#"{"pubkey":"other","member_id":"m-9"}"#);
        broker.push(PushFrame::system(MESH_ID, "s", "t", name, of_another));
        broker.push(clear("c-1", 2, "still here"));
        until_acked(&broker, 1).await;
        let data = RawJson::parse(&data.to_string());
        broker.push(PushFrame::system(MESH_ID, "s", "t", name, data));
        assert_eq!(daemon.ended().await.status(), 5, "{name}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_acknowledged_and_the_next_one_arrives() {
    let (_home, broker, daemon) = connected().await;
    let unread = r#"{"type":"push","messageId":"b-1","client_message_id":"c-1","priority":7}"#;
    broker.raw(unread.to_owned());
    broker.push(direct("c-2", 2, "hello alice"));
    let acks = until_acked(&broker, 2).await;
    assert_eq!(acks[0]["brokerMessageId"], "b-1");
    assert_eq!(acks[0]["clientMessageId"], "c-1");
    assert_eq!(acks[1]["brokerMessageId"], "b-c-2");
    let found = items(&daemon, "").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["body"], "hello alice");
}

/// The ids of all messages in the inbox.
async fn all_ids(daemon: &Daemon) -> Vec<String> {
    let mut ids = Vec::new();
    let mut next = String::new();
    loop {
        let page = daemon.get(&format!("/v1/inbox?limit=1000{next}")).await;
        let page = page.json();
        let found = page["items"].as_array().unwrap().iter();
        ids.extend(found.map(|item| item["client_message_id"].to_string()));
        let Some(cursor) = page["next"].as_str() else {
            return ids;
        };
        next = format!("&before={cursor}");
    }
}

#[tokio::test]
async fn a_full_inbox_takes_nothing_until_there_is_space() {
    // Of each 64 that are stored together the first ones fill it.
    const MESSAGES: usize = 200;
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    home.configure("[disk]\nreserved_bytes = 2000000\n");
    let daemon = home.up().await;
    daemon.until_connected().await;
    let mut events = daemon.events().await;
    let body = "x".repeat(20_000);
    let push = |number: usize| broker.push(clear(&format!("c-{number}"), 2, &body));
    (0..MESSAGES).for_each(push);
    let joined = RawJson::parse(r#"{"displayName":"bob","pubkey":"k"}"#);
    broker.push(PushFrame::system(MESH_ID, "s", "t", "peer_joined", joined));
    events.event("peer_join").await;
    let stored = all_ids(&daemon).await.len();
    assert!((10..MESSAGES).contains(&stored), "{stored}");
    let acks = until_acked(&broker, stored).await;
    assert_eq!(acks.len(), stored, "what is not stored is not acknowledged");
    let warned = home.logged("inbox_pressure_high");
    assert_eq!(warned.len(), 1);
    assert!(warned[0]["pct"].as_u64() >= Some(80));
    let event = events.event("inbox_pressure_high").await;
    assert_eq!(event["mesh"], "home");
    // The broker sends the others again, and they are stored when there is space.
    home.configure("[disk]\nreserved_bytes = 50000000\n");
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    (0..MESSAGES).for_each(push);
    until_acked(&broker, stored + MESSAGES).await;
    assert_eq!(all_ids(&daemon).await.len(), MESSAGES);
    daemon.down().await;
}

#[tokio::test]
async fn cm_117_a_slow_reader_learns_how_many_events_it_missed_and_the_state_of_the_line_is_told() {
    let (_home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    let mut pushed = 0;
    // More than the socket and the server buffer, and then more events than are kept.
    for (count, bytes) in [(40, 40_000), (150, 10), (150, 10), (150, 10)] {
        let body = "x".repeat(bytes);
        for _ in 0..count {
            broker.push(clear(&format!("c-{pushed}"), 2, &body));
            pushed += 1;
        }
        until_acked(&broker, pushed).await;
    }
    broker.close(1001, "again");
    broker
        .until("hello", |broker| broker.of_type("hello").len() == 2)
        .await;
    let text = events.until(": missed ").await.to_owned();
    let before = text.matches("event: message").count();
    assert!((1..pushed).contains(&before), "{before}");
    let text = events.until("\"status\":\"open\"").await.to_owned();
    let closed = text.find("\"status\":\"closed\"").expect("closed");
    assert!(closed < text.find("\"status\":\"open\"").expect("open"));
    assert!(text.contains("event: broker_status\ndata: "), "{before}");
    // Nothing is repeated: what was missed and what came is everything.
    let messages = text.matches("event: message").count();
    let missed = text.split(": missed ").skip(1).map(|rest| {
        let number = rest.split('\n').next().unwrap();
        number.parse::<usize>().unwrap()
    });
    assert_eq!(messages + missed.sum::<usize>(), pushed);
    daemon.down().await;
}

#[tokio::test]
async fn cm_115_a_running_daemon_counts_what_it_does() {
    let (_home, broker, daemon) = connected().await;
    broker.push(direct("c-1", 2, "hello"));
    broker.push(clear("c-2", 2, "hello"));
    broker.push(direct("c-1", 2, "hello"));
    broker.raw("{".to_owned());
    until_acked(&broker, 3).await;
    let to = key(2).public_key().to_string();
    daemon.send("s-1", &to, "hi").await;
    daemon.until_status("s-1", "done").await;
    assert_eq!(daemon.post("/v1/heartbeat", &json!({})).await.status, 200);
    assert_eq!(daemon.get("/v1/nothing").await.status, 404);
    broker.close(1001, "again");
    broker
        .until("hello", |broker| broker.of_type("hello").len() == 2)
        .await;
    daemon.until_connected().await;
    let text = daemon.get("/v1/metrics").await.text;
    for line in [
        r#"cm_daemon_connected{mesh="home"} 1"#,
        r#"cm_daemon_reconnects_total{mesh="home",reason="closed"} 1"#,
        r#"cm_daemon_recv_total{mesh="home",kind="dm",from_type="peer"} 1"#,
        r#"cm_daemon_recv_total{mesh="home",kind="queue",from_type="peer"} 1"#,
        r#"cm_daemon_dedupe_total{mesh="home",direction="in"} 1"#,
        r#"cm_daemon_send_total{mesh="home",kind="dm",status="done"} 1"#,
        r#"cm_daemon_outbox_depth{mesh="home",status="pending"} 0"#,
        r#"cm_daemon_outbox_depth{mesh="home",status="dead"} 0"#,
        r#"cm_daemon_disk_pct{mesh="home",kind="inbox"} 0"#,
        r#"cm_daemon_ipc_request_total{endpoint="/v1/heartbeat",status="200",transport="uds"} 1"#,
        r#"cm_daemon_ipc_request_total{endpoint="/v1/send",status="202",transport="uds"} 1"#,
        r#"cm_daemon_ipc_request_total{endpoint="other",status="404",transport="uds"} 1"#,
        r#"cm_daemon_ipc_duration_seconds_count{endpoint="/v1/heartbeat"} 1"#,
        "cm_daemon_invalid_inbound_total 1",
        "cm_daemon_decrypt_stale_total 0",
        "cm_daemon_clone_suspected_total 0",
        "cm_daemon_log_lines_lost_total 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_099_old_messages_are_removed_when_the_broker_has_confirmed_the_time() {
    let (home, broker, daemon) = connected().await;
    broker.push(clear("c-old", 2, "hello"));
    broker.push(clear("c-new", 2, "hello"));
    until_acked(&broker, 2).await;
    daemon.down().await;
    let inbox = rusqlite::Connection::open(home.folder().join("inbox.db")).unwrap();
    let sql = "UPDATE inbox SET received_at = 1000 WHERE client_message_id = 'c-old'";
    assert_eq!(inbox.execute(sql, []).unwrap(), 1);
    drop(inbox);
    let mut options = home.options();
    options.broker_url = Some(crate::world::NO_BROKER.to_owned());
    let daemon = home.up_with(options).await;
    daemon
        .until_health(|health| health["last_error"].is_string())
        .await;
    for _ in 0..50 {
        assert_eq!(items(&daemon, "").await.len(), 2);
    }
    daemon.down().await;
    let daemon = home.up().await;
    daemon.until_connected().await;
    let removed = "old messages were removed from the inbox";
    while home.logged(removed).is_empty() {
        assert!(items(&daemon, "").await.len() <= 2);
    }
    let left = items(&daemon, "").await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["client_message_id"], "c-new");
    daemon.down().await;
}
