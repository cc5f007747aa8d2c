//! Rows that wait, die, are repaired or are edited by another program.

use std::sync::Arc;

use consign_mesh::frame::AckFrame;
use consign_mesh::ulid::MeshUlid;
use serde_json::{Value, json};

use crate::broker_double::{BrokerDouble, accepted, refused};
use crate::sending::{bob, connected};
use crate::world::{Daemon, Home, NO_BROKER};

#[tokio::test]
async fn cm_064_cm_065_each_status_answers_a_repeated_id_and_changes_no_row() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for id in ["pending", "inflight", "done", "dead", "aborted"] {
        assert_eq!(daemon.send(id, "*", "same").await.status, 202);
    }
    let aborted = daemon.row("aborted").await["id"].clone();
    let dropped = daemon
        .post("/v1/outbox/drop", &json!({"id": aborted}))
        .await;
    assert_eq!(dropped.json(), json!({"dropped_row_id": aborted}));
    daemon.down().await;
    home.edit_outbox(
        "UPDATE outbox SET status = 'done', delivered_at = enqueued_at, broker_message_id = 'b', history_id = 'h' WHERE client_message_id = 'done'; \
         UPDATE outbox SET status = 'dead', last_error = 'no' WHERE client_message_id = 'dead'",
    );
    let daemon = home.up().await;
    let snapshot = "SELECT client_message_id, status, attempts, hex(request_fingerprint) FROM outbox ORDER BY 1";
    let before = home.outbox(snapshot);
    let cases = [
        (
            "pending",
            "same",
            202,
            json!({"client_message_id": "pending", "status": "queued"}),
        ),
        (
            "done",
            "same",
            200,
            json!({"client_message_id": "done", "broker_message_id": "b", "history_id": "h", "duplicate": true}),
        ),
        (
            "pending",
            "other",
            409,
            json!({"conflict": "outbox_pending_fingerprint_mismatch", "broker_message_id": null}),
        ),
        (
            "done",
            "other",
            409,
            json!({"conflict": "outbox_done_fingerprint_mismatch", "broker_message_id": "b"}),
        ),
        (
            "dead",
            "same",
            409,
            json!({"conflict": "outbox_dead_fingerprint_match", "reason": "no"}),
        ),
        (
            "dead",
            "other",
            409,
            json!({"conflict": "outbox_dead_fingerprint_mismatch"}),
        ),
        (
            "aborted",
            "same",
            409,
            json!({"conflict": "outbox_aborted_fingerprint_match"}),
        ),
        (
            "aborted",
            "other",
            409,
            json!({"conflict": "outbox_aborted_fingerprint_mismatch"}),
        ),
    ];
    for (id, message, status, expected) in cases {
        let answer = daemon.send(id, "*", message).await;
        assert_eq!(answer.status, status, "{id} {message}: {}", answer.text);
        let body = answer.json();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(body[name], *value, "{id} {message} {name}");
        }
        if status == 409 {
            assert_eq!(body["error"], "idempotency_key_reused");
            let prefix = body["daemon_fingerprint_prefix"].as_str().unwrap();
            assert_eq!(prefix.len(), 16);
        }
    }
    assert_eq!(home.outbox(snapshot), before);
    daemon.down().await;
}

#[tokio::test]
async fn cm_089_rows_in_flight_are_due_again_with_one_attempt_more() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    daemon.send("edited", "*", "hi").await;
    daemon.down().await;
    home.edit_outbox("UPDATE outbox SET status = 'inflight', attempts = 1");
    let daemon = home.up().await;
    let row = daemon.row("edited").await;
    assert_eq!(
        (&row["status"], &row["attempts"]),
        (&json!("pending"), &json!(2))
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_079_cm_080_cm_036_a_requeued_row_is_retired_and_names_its_successor() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let body = json!({"to": bob(), "message": "hi", "client_message_id": "old", "meta": {"a": 1}, "priority": "now"});
    daemon.post("/v1/send", &body).await;
    let old = daemon.row("old").await["id"].clone();
    let requeued = daemon
        .post(
            "/v1/outbox/requeue",
            &json!({"id": old, "new_client_message_id": "new"}),
        )
        .await;
    assert_eq!(requeued.status, 200, "{}", requeued.text);
    let requeued = requeued.json();
    assert_eq!(requeued["aborted_row_id"], old);
    assert_eq!(requeued["new_client_message_id"], "new");
    let retired = daemon.row("old").await;
    assert_eq!(
        (&retired["status"], &retired["aborted_by"]),
        (&json!("aborted"), &json!("operator"))
    );
    assert_eq!(retired["superseded_by"], requeued["new_row_id"]);
    let columns = "SELECT target_spec, nonce, ciphertext, priority, destination_kind, destination_ref, meta, body_sha256, \
                   hex(request_fingerprint), mesh, envelope_version FROM outbox ORDER BY client_message_id";
    let rows = home.outbox(columns);
    assert_eq!(rows[0], rows[1], "routing and encryption are kept");
    assert_eq!(daemon.send("old", &bob(), "hi").await.status, 409);
    // A retired row, an unknown row, and an id that has a row.
    let dead = daemon.post("/v1/outbox/requeue", &json!({"id": old})).await;
    assert_eq!(dead.status, 409);
    let unknown = daemon
        .post("/v1/outbox/requeue", &json!({"id": "none"}))
        .await;
    assert_eq!(unknown.status, 409);
    let new = requeued["new_row_id"].clone();
    let taken = daemon
        .post(
            "/v1/outbox/requeue",
            &json!({"id": new, "new_client_message_id": "old"}),
        )
        .await;
    assert_eq!(taken.status, 409);
    assert_eq!(home.outbox("SELECT count(*) FROM outbox"), [["2"]]);
    // Another body is hashed and encrypted again, under a minted id.
    let patched = daemon
        .post(
            "/v1/outbox/requeue",
            &json!({"id": new, "message": "other"}),
        )
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    let minted = patched.json()["new_client_message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(MeshUlid::is_valid(&minted));
    let rows = home.outbox("SELECT DISTINCT hex(request_fingerprint) FROM outbox");
    assert_eq!(rows.len(), 2);
    daemon.down().await;
}

#[tokio::test]
async fn cm_095_a_queue_that_fills_up_warns_refuses_and_answers_known_ids() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[outbox]\nmax_queue_size = 20\n");
    let daemon = home.up().await;
    let mut events = daemon.events().await;
    for number in 0..19 {
        let answer = daemon.send(&format!("c-{number}"), "*", "hi").await;
        assert_eq!(answer.status, 202, "{number}: {}", answer.text);
    }
    let event = events.event("outbox_pressure_high").await;
    assert_eq!(event["pct"], 80);
    let full = daemon.send("c-19", "*", "hi").await;
    assert_eq!(
        (full.status, full.json()),
        (507, json!({"error": "insufficient_storage"}))
    );
    assert_eq!(
        daemon.send("c-3", "*", "hi").await.status,
        202,
        "a known id"
    );
    assert_eq!(daemon.row("c-19").await, Value::Null);
    assert_eq!(daemon.health().await["degraded"], false);
    daemon.down().await;
    home.configure("[outbox]\nmax_queue_size = 19\n");
    let daemon = home.up().await;
    assert_eq!(daemon.health().await["degraded"], true);
    daemon.down().await;
}

#[tokio::test]
async fn cm_087_cm_084_a_row_past_the_cutoff_is_dead_and_not_sent() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for id in ["old", "young"] {
        daemon.send(id, "*", "hi").await;
    }
    daemon.down().await;
    let hour = 3_600_000;
    home.edit_outbox(&format!(
        "UPDATE outbox SET enqueued_at = enqueued_at - 71 * {hour} - 1000 WHERE client_message_id = 'old'; \
         UPDATE outbox SET enqueued_at = enqueued_at - 71 * {hour} + 600000 WHERE client_message_id = 'young'"
    ));
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| behaviour.window = consign_mesh::max_age::DedupeWindow::Days(3));
    let mut options = home.options();
    options.broker_url = Some(broker.url.clone());
    let daemon = home.up_with(options).await;
    let dead = daemon.until_status("old", "dead").await;
    assert_eq!(dead["last_error"], "max_age_exceeded");
    daemon.until_status("young", "done").await;
    assert_eq!(broker.sent_ids(), ["young"]);
    assert_eq!(
        daemon.get("/v1/version").await.json()["outbox_max_age_hours"],
        72
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_092_dead_rows_are_listed_and_dropped() {
    let (_home, broker, daemon) = connected().await;
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| Some(refused(frame, 404, "not_found: no such member")));
    });
    daemon.send("c-1", &bob(), "hi").await;
    let row = daemon.until_status("c-1", "dead").await;
    let failed = daemon.get("/v1/outbox?status=dead").await.json();
    assert_eq!(failed["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        failed["items"][0]["last_error"],
        "not_found: no such member"
    );
    let dropped = daemon
        .post("/v1/outbox/drop", &json!({"id": row["id"]}))
        .await;
    assert_eq!(dropped.status, 200);
    assert_eq!(daemon.row("c-1").await["status"], "aborted");
    assert_eq!(daemon.row("c-1").await["superseded_by"], Value::Null);
    let pruned = daemon
        .post("/v1/outbox/prune", &json!({"confirm": true}))
        .await;
    assert_eq!((pruned.status, pruned.json()), (200, json!({"pruned": 0})));
    assert_eq!(
        daemon
            .post("/v1/outbox/prune", &json!({"confirm": false}))
            .await
            .status,
        400
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_033_times_of_rows_are_texts_with_milliseconds() {
    let (_home, broker, daemon) = connected().await;
    daemon.send("c-1", "*", "hi").await;
    let done = daemon.until_status("c-1", "done").await;
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| Some(refused(frame, 404, "not_found")));
    });
    daemon.send("c-2", "*", "hi").await;
    let dead = daemon.until_status("c-2", "dead").await;
    let body = json!({"id": dead["id"]});
    assert_eq!(daemon.post("/v1/outbox/drop", &body).await.status, 200);
    let aborted = daemon.row("c-2").await;
    for time in [
        &done["enqueued_at"],
        &done["next_attempt_at"],
        &done["delivered_at"],
        &aborted["aborted_at"],
    ] {
        let text = time.as_str().unwrap();
        let parsed: jiff::Timestamp = text.parse().unwrap();
        let now = jiff::Timestamp::now();
        assert!(now.duration_since(parsed).abs().as_secs() < 60, "{text}");
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
    }
    assert_eq!(
        (&done["aborted_at"], &aborted["delivered_at"]),
        (&Value::Null, &Value::Null)
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_093_a_retry_that_the_broker_has_forgotten_is_counted() {
    let (home, broker, daemon) = connected().await;
    daemon.send("c-1", "*", "hi").await;
    daemon.until_status("c-1", "done").await;
    daemon.down().await;
    home.edit_outbox("UPDATE outbox SET status = 'pending', delivered_at = NULL");
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| {
            Some(AckFrame {
                broker_message_id: Some("b-new".to_owned()),
                ..accepted(frame)
            })
        });
    });
    let daemon = home.up().await;
    let row = daemon.until_status("c-1", "done").await;
    assert_eq!(row["broker_message_id"], "b-new");
    let metrics = daemon.get("/v1/metrics").await.text;
    assert!(
        metrics.contains("cm_daemon_retry_after_dedupe_expired_total 1"),
        "{metrics}"
    );
    daemon.down().await;
}

const DAY_MS: i64 = 86_400_000;

/// Rows of each kind: delivered long ago, delivered, dead, retired long ago, retired.
async fn rows_of_all_kinds(home: &Home, broker: &BrokerDouble, daemon: Daemon) {
    for id in ["done-old", "done"] {
        daemon.send(id, "*", "hi").await;
        daemon.until_status(id, "done").await;
    }
    broker.change(|behaviour| {
        behaviour.ack = Arc::new(|frame| Some(refused(frame, 404, "not_found")));
    });
    for id in ["dead", "aborted-old", "aborted"] {
        daemon.send(id, "*", "hi").await;
        let row = daemon.until_status(id, "dead").await;
        if id != "dead" {
            let body = json!({"id": row["id"]});
            assert_eq!(daemon.post("/v1/outbox/drop", &body).await.status, 200);
        }
    }
    daemon.down().await;
    home.edit_outbox(&format!(
        "UPDATE outbox SET delivered_at = delivered_at - 8 * {DAY_MS} WHERE client_message_id = 'done-old'; \
         UPDATE outbox SET aborted_at = aborted_at - 31 * {DAY_MS} WHERE client_message_id = 'aborted-old'"
    ));
}

const IDS: &str = "SELECT client_message_id FROM outbox ORDER BY client_message_id";

#[tokio::test]
async fn cm_036_rows_are_listed_and_delivered_ones_past_their_retention_are_pruned() {
    let (home, broker, daemon) = connected().await;
    rows_of_all_kinds(&home, &broker, daemon).await;
    let daemon = home.up().await;
    let ids = async |query: &str| {
        let listed = daemon.get(&format!("/v1/outbox{query}")).await.json();
        let items = listed["items"].as_array().unwrap().iter();
        let ids = items.map(|item| item["client_message_id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let newest_first = ["aborted", "aborted-old", "dead", "done", "done-old"];
    assert_eq!(ids("").await, newest_first);
    assert_eq!(ids("?limit=2").await, newest_first[..2]);
    assert_eq!(ids("?status=dead").await, ["dead"]);
    assert_eq!(ids("?status=done&limit=1").await, ["done"]);
    assert_eq!(ids("?status=aborted").await, ["aborted", "aborted-old"]);
    assert_eq!(ids("?status=pending").await, [""; 0]);
    let wrong = daemon.get("/v1/outbox?status=lost").await;
    assert_eq!(wrong.status, 400);
    // Without the word of the operator nothing is removed, and with it only what was delivered.
    let prune = async |body: Value| {
        let pruned = daemon.post("/v1/outbox/prune", &body).await;
        (pruned.status, pruned.json()["pruned"].clone())
    };
    assert_eq!(prune(json!({})).await.0, 400);
    assert_eq!(prune(json!({"confirm": true})).await, (200, json!(1)));
    assert_eq!(prune(json!({"confirm": true})).await, (200, json!(0)));
    assert_eq!(ids("").await, newest_first[..4]);
    daemon.down().await;
}

#[tokio::test]
async fn cm_080_ended_rows_are_removed_once_a_day_and_their_ids_stay_used() {
    let (home, broker, daemon) = connected().await;
    rows_of_all_kinds(&home, &broker, daemon).await;
    // A start is no reason: a daemon that starts often removes them as rarely as any other.
    home.up().await.down().await;
    assert_eq!(home.outbox(IDS).len(), 5);
    home.edit_outbox(&format!(
        "UPDATE records SET value = value - {DAY_MS} * 1000 WHERE name = 'outbox.pruned'; \
         UPDATE facts SET at = at - 31 * {DAY_MS} * 1000"
    ));
    let facts =
        "SELECT count(*) FROM facts WHERE at < (SELECT last_time FROM position) - 2592000000000";
    assert_ne!(home.outbox(facts), [["0"]]);
    let daemon = home.up().await;
    while home.outbox(IDS).len() == 5 || home.logged("outbox_pruned").is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(home.outbox(IDS), [["aborted"], ["dead"], ["done"]]);
    assert_eq!(home.outbox(facts), [["0"]]);
    for (id, message, status, word) in [
        ("done-old", "hi", 200, "\"duplicate\":true"),
        ("done-old", "other", 409, "outbox_done_fingerprint_mismatch"),
        ("aborted-old", "hi", 409, "outbox_aborted_fingerprint_match"),
        (
            "aborted-old",
            "other",
            409,
            "outbox_aborted_fingerprint_mismatch",
        ),
    ] {
        let answer = daemon.send(id, "*", message).await;
        assert_eq!(answer.status, status, "{id} {message}: {}", answer.text);
        assert!(answer.text.contains(word), "{id}: {}", answer.text);
    }
    assert_eq!(home.outbox(IDS).len(), 3);
    daemon.down().await;
}

#[tokio::test]
async fn cm_095_free_pages_of_the_file_do_not_count_as_full() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for number in 0..8 {
        let large = "x".repeat(40_000);
        let answer = daemon.send(&format!("c-{number}"), "*", &large).await;
        assert_eq!(answer.status, 202);
    }
    daemon.down().await;
    home.edit_outbox(&format!(
        "UPDATE outbox SET status = 'done', delivered_at = enqueued_at - 8 * {DAY_MS}"
    ));
    home.up().await.down().await;
    let file = home.folder().join("outbox.db");
    let bytes = std::fs::metadata(&file).unwrap().len();
    home.configure(&format!("[disk]\nreserved_bytes = {bytes}\n"));
    let daemon = home.up().await;
    let pruned = daemon
        .post("/v1/outbox/prune", &json!({"confirm": true}))
        .await;
    assert_eq!(pruned.json(), json!({"pruned": 8}));
    assert!(std::fs::metadata(&file).unwrap().len() >= bytes);
    let answer = daemon.send("next", "*", "hi").await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(daemon.health().await["degraded"], false);
    daemon.down().await;
    for limit in ["[disk]\nreserved_bytes", "[fleet]\ntotal_disk_budget"] {
        home.configure(&format!("{limit} = 1000\n"));
        let daemon = home.up().await;
        assert_eq!(daemon.send("more", "*", "hi").await.status, 507, "{limit}");
        assert_eq!(daemon.health().await["degraded"], true, "{limit}");
        daemon.down().await;
    }
}
