//! From a request of a local program to the acknowledgement of the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consign_mesh::body::CarriedBody;
use consign_mesh::frame::{
    AckFrame, BrokerFrame, PeerEntry, PeersList, PushFrame, SendFrame, TopicEntry,
    TopicListResponse,
};
use consign_mesh::limits::FRAME_BYTES_MAX;
use consign_mesh::priority::PeerStatus;
use consign_mesh::role::TopicVisibility;
use consign_mesh::ulid::MeshUlid;
use serde_json::{Value, json};

use crate::broker_double::{BrokerDouble, accepted, refused};
use crate::local_http::{self, Extra};
use crate::world::{Daemon, Home, MESH_ID, NO_BROKER, key};

pub(crate) fn bob() -> String {
    key(2).public_key().to_string()
}

pub(crate) async fn connected() -> (Home, BrokerDouble, Daemon) {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    (home, broker, daemon)
}

pub(crate) fn peer(name: &str, seed: u8) -> PeerEntry {
    PeerEntry {
        pubkey: key(seed).public_key().to_string(),
        member_pubkey: Some(key(seed).public_key().to_string()),
        display_name: name.to_owned(),
        status: PeerStatus::Idle,
        summary: None,
        groups: Vec::new(),
        session_id: "s".to_owned(),
        connected_at: "2026-01-01T00:00:00.000Z".to_owned(),
        cwd: String::new(),
        peer_role: None,
        hostname: None,
        peer_type: None,
        channel: None,
        model: None,
        stats: None,
        visible: None,
        profile: None,
    }
}

fn topics(names: &[&str]) -> TopicListResponse {
    let entry = |name: &&str| TopicEntry {
        id: format!("t-{name}"),
        name: (*name).to_owned(),
        description: None,
        visibility: TopicVisibility::Public,
        member_count: 1,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
    };
    TopicListResponse {
        topics: names.iter().map(entry).collect(),
    }
}

#[tokio::test]
async fn cm_038_cm_062_cm_077_an_accepted_message_reaches_the_broker_once() {
    let (home, broker, daemon) = connected().await;
    let answer = daemon.send("c-1", &bob(), "hello bob").await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.json(),
        json!({"client_message_id": "c-1", "status": "queued"})
    );
    let row = daemon.until_status("c-1", "done").await;
    assert_eq!(row["broker_message_id"], "b-c-1");
    assert_eq!(row["attempts"], 1);
    let sent = broker.of_type("send");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["targetSpec"], bob());
    assert_eq!(sent[0]["destination_kind"], "dm");
    assert_eq!(sent[0]["envelope_version"], 1);
    let again = daemon.send("c-1", &bob(), "hello bob").await;
    assert_eq!(again.status, 200);
    assert_eq!(
        again.json(),
        json!({"client_message_id": "c-1", "broker_message_id": "b-c-1", "history_id": "h-c-1", "duplicate": true})
    );
    assert_eq!(broker.of_type("send").len(), 1);
    assert_eq!(
        home.outbox("SELECT status, attempts, broker_message_id, history_id FROM outbox"),
        [["done", "1", "b-c-1", "h-c-1"]]
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_039_cm_040_the_header_beats_the_body_and_an_id_is_minted() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let body = json!({"to": "*", "message": "hi", "client_message_id": "of-body"}).to_string();
    let post = async |headers: &[(&str, &str)], body: &str| {
        let extra = Extra {
            headers,
            body: body.as_bytes(),
        };
        let answer = local_http::unix(&daemon.sock(), "POST", "/v1/send", extra).await;
        answer.json()["client_message_id"].clone()
    };
    assert_eq!(
        post(&[("Idempotency-Key", "of-head")], &body).await,
        "of-head"
    );
    assert_eq!(post(&[], &body).await, "of-body");
    let minted = post(&[], r#"{"to":"*","message":"hi"}"#).await;
    assert!(MeshUlid::is_valid(minted.as_str().unwrap()), "{minted}");
    daemon.down().await;
}

#[tokio::test]
async fn cm_051_a_restart_sends_the_same_bytes_again() {
    let (home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|_| None));
    let body = json!({"to": bob(), "message": "once", "client_message_id": "c-1", "meta": {"b": 1, "a": [2.0]}, "reply_to_id": "r"});
    assert_eq!(daemon.post("/v1/send", &body).await.status, 202);
    broker
        .until("sent", |broker| broker.sent_ids() == ["c-1"])
        .await;
    daemon.down().await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|frame| Some(accepted(frame))));
    let daemon = home.up().await;
    let row = daemon.until_status("c-1", "done").await;
    assert!(row["attempts"].as_u64().unwrap() > 1);
    let texts = broker.texts_of("send");
    assert!(texts.len() >= 2);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    daemon.down().await;
}

#[tokio::test]
async fn accepted_rows_go_out_in_their_order_also_without_a_broker_at_first() {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let ids: Vec<String> = (0..70).map(|number| format!("c-{number:02}")).collect();
    for id in &ids {
        assert_eq!(daemon.send(id, "@team", "hi").await.status, 202);
    }
    assert_eq!(daemon.health().await["connected"], false);
    assert_eq!(daemon.health().await["queue_depth"], 70);
    daemon.down().await;
    let mut options = home.options();
    options.broker_url = Some(broker.url.clone());
    let daemon = home.up_with(options).await;
    broker
        .until("all", |broker| broker.sent_ids().len() >= 70)
        .await;
    assert_eq!(broker.sent_ids(), ids);
    daemon.until_status("c-69", "done").await;
    daemon.down().await;
}

#[tokio::test]
async fn cm_064_a_message_in_flight_answers_so() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|_| None));
    daemon.send("c-1", "*", "same").await;
    daemon.until_status("c-1", "inflight").await;
    let same = daemon.send("c-1", "*", "same").await;
    assert_eq!(
        (same.status, &same.json()["status"]),
        (202, &json!("inflight"))
    );
    let other = daemon.send("c-1", "*", "other").await;
    assert_eq!(other.status, 409);
    assert_eq!(
        other.json()["conflict"],
        "outbox_inflight_fingerprint_mismatch"
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_066_concurrent_requests_with_one_id_make_one_row() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let requests = (0..24).map(|_| daemon.send("c-1", "*", "same"));
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    assert_eq!(home.outbox("SELECT count(*) FROM outbox"), [["1"]]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_069_cm_118_a_refusal_for_good_is_dead_and_reported() {
    let (home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| {
            Some(AckFrame {
                conflict: Some("request_fingerprint_mismatch".to_owned()),
                broker_fingerprint_prefix: Some("0123456789abcdef".to_owned()),
                ..refused(frame, 409, "idempotency_key_reused: invalid reuse")
            })
        });
    });
    daemon.send("c-1", "*", "hi").await;
    let row = daemon.until_status("c-1", "dead").await;
    assert_eq!(row["attempts"], 1);
    let event = events.event("outbox_dead").await;
    assert_eq!(event["client_message_id"], "c-1");
    assert_eq!(event["severity"], "high");
    assert_eq!(event["conflict"], "request_fingerprint_mismatch");
    assert_eq!(event["broker_fingerprint_prefix"], "0123456789abcdef");
    let lines: Vec<Value> = home
        .log()
        .into_iter()
        .filter(|line| line["level"] == "error")
        .collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["client_message_id"], "c-1");
    assert_eq!(daemon.health().await["dead"], 1);
    assert_eq!(daemon.send("c-1", "*", "hi").await.status, 409);
    daemon.down().await;
}

#[tokio::test]
async fn cm_069_cm_063_a_refusal_for_now_is_sent_again_under_the_same_id() {
    let (_home, broker, daemon) = connected().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(move |frame| {
            Some(match counted.fetch_add(1, Ordering::SeqCst) {
                0 => refused(frame, 503, "unavailable"),
                1 => refused(frame, 429, "rate_limit: later"),
                _ => accepted(frame),
            })
        });
    });
    daemon.send("c-1", "*", "hi").await;
    let row = daemon.until_status("c-1", "done").await;
    assert_eq!(row["attempts"], 3);
    assert_eq!(broker.sent_ids(), ["c-1", "c-1", "c-1"]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_062_duplicates_are_done_and_a_pruned_history_is_a_warning() {
    let (home, broker, daemon) = connected().await;
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| {
            let is_pruned = frame.client_message_id.as_deref() == Some("pruned");
            Some(AckFrame {
                code: Some(200),
                duplicate: Some(true),
                history_available: Some(!is_pruned),
                ..accepted(frame)
            })
        });
    });
    for id in ["kept", "pruned"] {
        daemon.send(id, "*", "hi").await;
        daemon.until_status(id, "done").await;
    }
    let warned = home.logged("dedupe_history_pruned");
    assert_eq!(warned.len(), 1);
    assert_eq!(
        (&warned[0]["level"], &warned[0]["client_message_id"]),
        (&json!("warn"), &json!("pruned"))
    );
    assert_eq!(home.logged("dedupe_duplicate").len(), 1);
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains("cm_daemon_dedupe_history_pruned_total 1"),
        "{metrics}"
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_054_names_become_keys_before_they_are_hashed() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| {
        behaviour.peers = PeersList {
            peers: vec![peer("Bob", 2), peer("carol", 3), peer("Carol", 4)],
            ..PeersList::default()
        };
    });
    for (id, to) in [
        ("c-1", "bob"),
        ("c-2", &bob()[..20]),
        ("c-3", &bob().to_uppercase()),
    ] {
        assert_eq!(daemon.send(id, to, "hi").await.status, 202, "{to}");
        daemon.until_status(id, "done").await;
    }
    let sent = broker.of_type("send");
    assert!(sent.iter().all(|frame| frame["destination_ref"] == bob()));
    assert!(
        sent.iter()
            .all(|frame| frame["request_fingerprint"] == sent[0]["request_fingerprint"])
    );
    let ambiguous = daemon.send("c-4", "carol", "hi").await;
    assert_eq!(
        (ambiguous.status, ambiguous.json()),
        (409, json!({"error": "destination_ambiguous"}))
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_055_an_unknown_destination_uses_up_no_id() {
    let (_home, broker, daemon) = connected().await;
    for to in ["nobody", "#nowhere"] {
        let answer = daemon.send("c-1", to, "hi").await;
        assert_eq!(
            (answer.status, answer.json()),
            (404, json!({"error": "destination_not_found"}))
        );
    }
    assert_eq!(daemon.row("c-1").await, Value::Null);
    broker.change(|behaviour| behaviour.topics = topics(&["alerts"]));
    let post = json!({"topic": "alerts", "message": "hi", "client_message_id": "c-1"});
    assert_eq!(daemon.post("/v1/topic/post", &post).await.status, 202);
    daemon.until_status("c-1", "done").await;
    let sent = broker.of_type("send");
    assert_eq!(
        (&sent[0]["targetSpec"], &sent[0]["destination_ref"]),
        (&json!("#alerts"), &json!("alerts"))
    );
    assert_eq!(sent[0]["bodyVersion"], 1);
    daemon.down().await;
}

#[tokio::test]
async fn cm_049_cm_050_what_cannot_be_hashed_is_refused() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let cases: [(&[u8], &str); 6] = [
        (
            br#"{"to":"*","message":"m","meta":{"a":1,"a":2}}"#,
            "meta_not_canonical",
        ),
        (
            br#"{"to":"*","message":"m","meta":{"a":"\ud800"}}"#,
            "meta_not_canonical",
        ),
        (
            br#"{"to":"*","message":"m","meta":{"a":9007199254740993}}"#,
            "meta_not_canonical",
        ),
        (br#"{"to":"*","message":"m","replyToId":"a\u0000b"}"#, "NUL"),
        (br#"{"to":"*","message":""}"#, "missing 'message'"),
        (br#"{"message":"m"}"#, "missing 'to'"),
    ];
    for (body, expected) in cases {
        let answer = daemon.post_text("/v1/send", body).await;
        let text = String::from_utf8_lossy(body);
        assert_eq!(answer.status, 400, "{text}: {}", answer.text);
        assert!(answer.text.contains(expected), "{text}: {}", answer.text);
    }
    assert_eq!(home.outbox("SELECT count(*) FROM outbox"), [["0"]]);
    daemon.down().await;
}

#[tokio::test]
async fn what_does_not_fit_a_frame_is_413_and_no_row() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let large = daemon.send("c-1", &bob(), &"x".repeat(48_001)).await;
    assert_eq!(
        (large.status, large.json()),
        (413, json!({"error": "payload_too_large"}))
    );
    let meta = json!({"to": "*", "message": "x".repeat(47_000), "meta": {"m": "y".repeat(20_000)}, "client_message_id": "c-1"});
    assert_eq!(daemon.post("/v1/send", &meta).await.status, 413);
    assert_eq!(home.outbox("SELECT count(*) FROM outbox"), [["0"]]);
    assert_eq!(
        daemon.send("c-1", &bob(), &"x".repeat(48_000)).await.status,
        202
    );
    daemon.down().await;
}

#[tokio::test]
async fn what_its_recipient_could_not_read_is_413() {
    let (_home, broker, daemon) = connected().await;
    let request = |padding: usize| {
        let meta = json!({"m": "y".repeat(padding)});
        let id = format!("c-{padding}");
        json!({"to": bob(), "message": "x".repeat(30_000), "meta": meta, "client_message_id": id})
    };
    let (mut accepted, mut refused) = (10_000, 40_000);
    while refused - accepted > 1 {
        let padding = usize::midpoint(accepted, refused);
        let answer = daemon.post("/v1/send", &request(padding)).await;
        match answer.status {
            202 => accepted = padding,
            413 => refused = padding,
            _ => panic!("{}", answer.text),
        }
    }
    let id = format!("c-{accepted}");
    let sent = |broker: &BrokerDouble| {
        let mut sent = broker.of_type("send").into_iter();
        sent.find(|frame| frame["client_message_id"] == id.as_str())
    };
    broker.until("sent", |broker| sent(broker).is_some()).await;
    let send: SendFrame = serde_json::from_value(sent(&broker).unwrap()).unwrap();
    let push = BrokerFrame::from(PushFrame::longest(&send, MESH_ID, "m-1"));
    assert_eq!(push.to_text(None).len(), FRAME_BYTES_MAX);
    daemon.down().await;
}

#[tokio::test]
async fn cm_078_a_broken_connection_makes_its_rows_due_again() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|_| None));
    daemon.send("c-1", "*", "hi").await;
    broker
        .until("sent", |broker| broker.sent_ids().len() == 1)
        .await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|frame| Some(accepted(frame))));
    broker.close(1001, "shutting down");
    let row = daemon.until_status("c-1", "done").await;
    assert_eq!(row["attempts"], 2);
    assert_eq!(broker.sent_ids(), ["c-1", "c-1"]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_078_a_row_is_in_flight_once_and_its_answer_is_awaited_for_15_seconds() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| behaviour.ack = Arc::new(|_| None));
    let body = json!({"to": "*", "message": "hi", "client_message_id": "c-1"});
    assert_eq!(daemon.post("/v1/send", &body).await.status, 202);
    let is_sent = |times: usize| move |broker: &BrokerDouble| broker.sent_ids().len() == times;
    broker.until("sent", is_sent(1)).await;
    let since = std::time::Instant::now();
    // Requests with the same id and the next message change nothing about it.
    for _ in 0..3 {
        let again = daemon.post("/v1/send", &body).await;
        assert_eq!(again.json()["status"], "inflight");
    }
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| {
            let is_next = frame.client_message_id.as_deref() == Some("c-2");
            is_next.then(|| accepted(frame))
        });
    });
    daemon.send("c-2", "*", "hi").await;
    daemon.until_status("c-2", "done").await;
    assert_eq!(broker.sent_ids(), ["c-1", "c-2"]);
    broker.until("sent again", is_sent(3)).await;
    // The pause before the next attempt is half a second, give or take a quarter of it.
    let waited = since.elapsed().as_secs_f64();
    assert!((15.0..18.0).contains(&waited), "{waited}");
    let row = daemon.row("c-1").await;
    assert_eq!(
        (&row["status"], &row["attempts"], &row["last_error"]),
        (&json!("inflight"), &json!(2), &json!("no ack in time"))
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_054_a_message_to_a_session_is_sealed_for_its_key_and_hashed_for_its_member() {
    let (_home, broker, daemon) = connected().await;
    let session = key(5).public_key().to_string();
    broker.change(|behaviour| {
        let entry = PeerEntry {
            pubkey: session.clone(),
            ..peer("Bob", 2)
        };
        behaviour.peers.peers = vec![entry];
    });
    daemon.send("c-1", &session, "hello").await;
    daemon.until_status("c-1", "done").await;
    let sent = broker.of_type("send");
    assert_eq!(sent[0]["targetSpec"], json!(session));
    assert_eq!(sent[0]["destination_ref"], json!(bob()));
    let text = |name: &str| sent[0][name].as_str().unwrap().to_owned();
    let carried = CarriedBody {
        nonce: text("nonce"),
        ciphertext: text("ciphertext"),
    };
    let opened = carried.open_direct(key(1).public_key(), &[&key(5).to_x25519()]);
    assert_eq!(
        opened.map(|(_, body)| body.to_vec()),
        Some(b"hello".to_vec())
    );
    let by_member = carried.open_direct(key(1).public_key(), &[&key(2).to_x25519()]);
    assert!(by_member.is_none(), "only the session opens it");
    daemon.down().await;
}
