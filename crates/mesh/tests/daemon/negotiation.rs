//! The beginning and the end of connections.

use consign_mesh::max_age::DedupeWindow;
use serde_json::{Value, json};

use crate::broker_double::BrokerDouble;
use crate::world::{Daemon, Home};

fn offer(change: impl FnOnce(&mut Value)) -> Value {
    let mut offer = json!({"supported": {
        "client_message_id_dedupe": {"params": {"version": 2, "mode": "retention_scoped",
            "dedupe_retention_days": 365, "request_fingerprint": true, "tombstone_history_pruned_window_days": 30}},
        "concurrent_connection_policy": {"params": {"version": 1, "default_policy": "prefer_newest"}},
        "max_payload": {"params": {"version": 1, "inline_bytes": 48000, "blob_bytes": 524_288_000}}},
        "missing_required": []});
    change(&mut offer);
    offer
}

async fn refused_by(offer: Value) -> (Home, BrokerDouble, u8) {
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| behaviour.negotiation = Some(offer));
    let home = Home::new(1, &broker.url);
    let end = home.start(home.options()).ended().await;
    let status = end.status();
    (home, broker, status)
}

#[tokio::test]
async fn cm_131_cm_083_cm_138_cm_139_each_failure_has_its_code_and_status() {
    let days = |days: Value| {
        offer(|offer| {
            offer["supported"]["client_message_id_dedupe"]["params"]["dedupe_retention_days"] =
                days;
        })
    };
    let dedupe = |name: &str, value: Value| {
        offer(|offer| offer["supported"]["client_message_id_dedupe"]["params"][name] = value)
    };
    let cases = [
        (dedupe("version", json!(1)), 4010, 10, "feature_unavailable"),
        (
            dedupe("version", json!(3)),
            4011,
            11,
            "feature_param_invalid",
        ),
        (
            dedupe("mode", json!("sometimes")),
            4011,
            11,
            "feature_param_invalid",
        ),
        (
            dedupe("request_fingerprint", json!(false)),
            4011,
            11,
            "feature_param_invalid",
        ),
        (days(json!(0)), 4011, 11, "feature_param_invalid"),
        (days(json!("3")), 4011, 11, "feature_param_invalid"),
        (days(json!(2)), 4012, 12, "feature_param_below_floor"),
        (
            offer(|offer| offer["missing_required"] = json!(["concurrent_connection_policy"])),
            4010,
            10,
            "feature_unavailable",
        ),
    ];
    for (offer, code, status, kind) in cases {
        let (home, broker, found) = refused_by(offer.clone()).await;
        assert_eq!(found, status, "{offer}");
        broker
            .until("closed", |broker| !broker.closes().is_empty())
            .await;
        let (closed, reason) = broker.closes().remove(0);
        assert_eq!(closed, code, "{offer}");
        let reason: Value = serde_json::from_str(&reason).unwrap();
        assert_eq!(reason["kind"], kind);
        assert!(
            reason["feature"].is_string() && reason["detail"].is_string(),
            "{reason}"
        );
        let warned = home.logged("feature_negotiation_failed");
        assert_eq!(warned.len(), 1);
        assert_eq!(warned[0]["level"], "warn");
        assert_eq!(warned[0]["payload"]["supported"], offer["supported"]);
    }
}

#[tokio::test]
async fn cm_133_the_request_is_the_second_frame_and_silence_is_4010() {
    let (_home, broker, status) = refused_by(Value::Null).await;
    assert_eq!(status, 10);
    let kinds: Vec<Value> = broker
        .received()
        .iter()
        .map(|frame| frame["type"].clone())
        .collect();
    assert_eq!(kinds, ["hello", "feature_negotiation_request"]);
    broker
        .until("closed", |broker| !broker.closes().is_empty())
        .await;
    assert_eq!(broker.closes()[0].0, 4010);
    let request = &broker.received()[1];
    assert_eq!(
        request["require"],
        json!(["client_message_id_dedupe", "concurrent_connection_policy"])
    );
}

async fn connected() -> (Home, BrokerDouble, Daemon) {
    let broker = BrokerDouble::start().await;
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    (home, broker, daemon)
}

#[tokio::test]
async fn cm_139_a_later_negotiation_that_fails_ends_the_daemon_as_well() {
    let (_home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    broker.change(|behaviour| {
        behaviour.negotiation = Some(offer(|offer| {
            offer["supported"]["client_message_id_dedupe"]["params"]["dedupe_retention_days"] =
                json!(1);
        }));
    });
    broker.close(1001, "shutting down");
    let event = events.event("feature_negotiation_failed").await;
    assert_eq!(
        (&event["code"], &event["feature"]),
        (&json!(4012), &json!("client_message_id_dedupe"))
    );
    assert_eq!(daemon.ended().await.status(), 12);
}

#[tokio::test]
async fn cm_019_cm_020_cm_127_close_codes_end_the_daemon_with_their_status() {
    for (code, reason, status) in [
        (4003, "replaced_by_newer_connection", 6),
        (4004, "member_already_connected", 1),
        (4002, "banned", 5),
        (4001, "kicked", 1),
    ] {
        let (home, broker, daemon) = connected().await;
        broker.close(code, reason);
        let end = daemon.ended().await;
        assert_eq!(end.status(), status, "{code}");
        assert!(end.message.unwrap().contains(reason));
        assert!(!home.folder().join("sock").exists());
    }
}

#[tokio::test]
async fn other_close_codes_connect_again() {
    let (_home, broker, daemon) = connected().await;
    let mut events = daemon.events().await;
    for (round, code) in [1000, 1001, 1008, 1009].into_iter().enumerate() {
        broker.close(code, "again");
        broker
            .until("hello", |broker| broker.of_type("hello").len() == round + 2)
            .await;
        daemon.until_connected().await;
    }
    events.event("daemon_disconnect").await;
    events.event("daemon_reconnect").await;
    daemon.down().await;
}

#[tokio::test]
async fn cm_132_a_bad_optional_parameter_is_logged_and_ignored() {
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| {
        behaviour.negotiation = Some(offer(|offer| {
            offer["supported"]["client_message_id_dedupe"]["params"]["tombstone_history_pruned_window_days"] = json!("many");
        }));
    });
    let home = Home::new(1, &broker.url);
    let daemon = home.up().await;
    daemon.until_connected().await;
    let warned = home.logged("feature_optional_param_invalid");
    assert_eq!(warned.len(), 1);
    assert_eq!(warned[0]["param"], "tombstone_history_pruned_window_days");
    daemon.down().await;
}

#[tokio::test]
async fn cm_082_cm_085_cm_086_the_age_follows_from_the_brokers_window() {
    for (window, settings, hours) in [
        (DedupeWindow::Days(3), "", 72),
        (DedupeWindow::Days(30), "", 648),
        (DedupeWindow::Days(365), "", 7_884),
        (DedupeWindow::Permanent, "", 168),
        (
            DedupeWindow::Permanent,
            "max_age_hours_override = 900\n",
            720,
        ),
        (DedupeWindow::Days(3), "max_age_hours_override = 71\n", 71),
    ] {
        let broker = BrokerDouble::start().await;
        broker.change(|behaviour| behaviour.window = window);
        let home = Home::new(1, &broker.url);
        home.configure(&format!("[outbox]\n{settings}"));
        let daemon = home.up().await;
        daemon.until_connected().await;
        let version = daemon.get("/v1/version").await.json();
        assert_eq!(
            version["outbox_max_age_hours"], hours,
            "{window:?} {settings}"
        );
        daemon.down().await;
    }
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| behaviour.window = DedupeWindow::Days(3));
    let home = Home::new(1, &broker.url);
    home.configure("[outbox]\nmax_age_hours_override = 72\n");
    let end = home.start(home.options()).ended().await;
    assert_ne!(end.status(), 0);
    assert!(
        end.message
            .unwrap()
            .contains("outbox_max_age_above_dedupe_window")
    );
    assert_eq!(home.logged("outbox_max_age_above_dedupe_window").len(), 1);
}

#[tokio::test]
async fn cm_136_cm_137_cm_119_version_compat_and_health_have_their_members() {
    let (home, _broker, daemon) = connected().await;
    let version = daemon.get("/v1/version").await.json();
    assert_eq!(
        (&version["ipc_api"], &version["mesh"]),
        (&json!("v1"), &json!("home"))
    );
    assert_eq!(
        version["ipc_features"],
        json!(["send", "topic", "peers", "files", "events", "health"])
    );
    assert_eq!(
        version["broker_feature_params"]["client_message_id_dedupe"]["dedupe_retention_days"],
        365
    );
    let negotiated = version["broker_features_negotiated"].as_array().unwrap();
    assert!(negotiated.contains(&json!("concurrent_connection_policy")));
    let compat = daemon.get("/v1/compat").await.json();
    assert_eq!(
        compat["compatible_brokers"],
        json!(["0.7.x", "0.8.x", "0.9.x"])
    );
    assert_eq!(
        compat["required_broker_features"],
        json!(["client_message_id_dedupe", "concurrent_connection_policy"])
    );
    let health = daemon.health().await;
    for member in [
        "ok",
        "connected",
        "degraded",
        "lag_ms",
        "queue_depth",
        "inflight",
        "dead",
        "mesh",
        "member_pubkey",
        "uptime_s",
        "schema_version",
        "daemon_version",
        "broker_version",
        "pid",
        "brokers",
    ] {
        assert!(health.get(member).is_some(), "{member}");
    }
    assert_eq!(health["broker_version"], "9.8.7", "what its hello_ack says");
    assert_eq!(health["brokers"], json!({"home": "open"}));
    assert_eq!(health["member_pubkey"], home.key.public_key().to_string());
    daemon.down().await;
}
