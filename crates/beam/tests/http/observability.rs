//! Searches and figures of operators, and the figures for everyone.

use consign_beam::http::BeamMount;
use consign_beam::lifecycle::OutcomeBucket;
use consign_engine::Operator;
use consign_kernel::state::State;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::shell::{MetricsText, Mount as _};
use serde_json::json;

use crate::observed::{Viewer, send_all, until, with_short_timeout};
use crate::world::{Identity, World};

#[tokio::test]
async fn be_005_be_152_the_status_filter_accepts_states_buckets_and_legacy_words() {
    let world = World::with(with_short_timeout).await;
    let (alice, bob) = send_all(&world).await;
    let viewer = Viewer::of(&world).await;
    until(&viewer, "late", State::Acked).await;
    for (query, expected) in [
        ("", 6),
        ("status=all", 6),
        ("status=acked", 3),
        ("status=success", 3),
        ("status=failed", 3),
        ("status=error", 3),
        ("status=dead_letter", 0),
        ("status=expired", 0),
        ("status=in_flight", 0),
        ("status=pending", 0),
        ("status=delivered", 0),
        ("status=nonsense", 0),
        ("errorCode=OFFLINE", 1),
        ("errorCode=NO_FUNDS&status=error", 1),
        ("errorCode=NO_FUNDS&status=success", 0),
        ("q=ACME", 6),
        ("q=timeou", 1),
        ("q=nowhere", 0),
        ("hours=1", 6),
        ("intentType=conversation.message", 6),
        ("intentType=other", 0),
    ] {
        assert_eq!(viewer.total(query).await, expected, "{query}");
    }
    let (from, to) = (&alice.beam_id, &bob.beam_id);
    for (query, expected) in [
        (format!("from={from}"), 6),
        (format!("to={to}"), 6),
        (format!("from={from}&to={to}&status=error"), 3),
        (format!("from={to}"), 0),
    ] {
        assert_eq!(viewer.total(&query).await, expected, "{query}");
    }
    let limited = viewer.get("/observability/intents?limit=2").await.json();
    assert_eq!(limited["intents"].as_array().unwrap().len(), 2);
    assert_eq!(limited["total"], 6);
    assert_eq!(limited["truncated"], false);
    // The newest one first.
    assert_eq!(limited["intents"][0]["nonce"], "timeout");
    // Buckets are derived: the ledger does not have their words.
    let stored = world.ledger().sql("SELECT detail FROM facts");
    assert!(!stored.is_empty());
    for bucket in OutcomeBucket::ALL {
        let word = format!(r#""{}""#, bucket.word());
        let found = stored.iter().find(|detail| detail.contains(&word));
        assert_eq!(found, None);
    }
}

#[tokio::test]
async fn be_153_the_counts_of_the_overview_are_those_of_the_buckets() {
    let world = World::with(with_short_timeout).await;
    let (alice, bob) = send_all(&world).await;
    let viewer = Viewer::of(&world).await;
    until(&viewer, "late", State::Acked).await;
    let overview = viewer.get("/observability/overview").await.json();
    assert_eq!(overview["windowHours"], 24);
    let summary = &overview["summary"];
    for (field, bucket) in [
        ("successCount", "success"),
        ("errorCount", "error"),
        ("inFlightCount", "in_flight"),
        ("totalIntents", "all"),
    ] {
        let counted = viewer.total(&format!("status={bucket}")).await;
        assert_eq!(summary[field], counted, "{field}");
    }
    assert_eq!(summary["successRate"], 0.5);
    assert_eq!(summary["totalAgents"], 2);
    assert_eq!(summary["liveAgents"], 2);
    for field in [
        "staleAgents",
        "federatedAgents",
        "federationPeers",
        "inFlightOlderThan15m",
    ] {
        assert_eq!(summary[field], 0, "{field}");
    }
    assert!(summary["p95LatencyMs"].is_number(), "{summary}");
    for (field, of) in [
        ("total", "totalIntents"),
        ("success", "successCount"),
        ("error", "errorCount"),
    ] {
        let buckets = overview["timeline"].as_array().unwrap().iter();
        let sum: i64 = buckets.map(|bucket| bucket[field].as_i64().unwrap()).sum();
        assert_eq!(summary[of], sum, "{field}");
    }
    assert_eq!(overview["topIntents"][0]["total"], 6);
    assert_eq!(overview["topErrors"].as_array().unwrap().len(), 3);
    assert_eq!(overview["alerts"], json!([]));
    for (hours, expected) in [("999999999", 2160), ("0", 1), ("x", 24)] {
        let path = format!("/observability/overview?hours={hours}");
        let overview = viewer.get(&path).await.json();
        assert_eq!(overview["windowHours"], expected, "{hours}");
    }
    let errors = viewer.get("/observability/errors").await.json();
    assert_eq!(errors["summary"]["totalErrors"], 3);
    assert_eq!(errors["summary"]["distinctErrorCodes"], 3);
    assert_eq!(errors["summary"]["timeoutCount"], 1);
    assert_eq!(errors["summary"]["offlineCount"], 1);
    let route = format!("{} → {}", alice.beam_id, bob.beam_id);
    assert_eq!(errors["routes"], json!([{"route": route, "count": 3}]));
}

#[tokio::test]
async fn stats_health_and_metrics_count_agents_and_intents() {
    let world = World::with(with_short_timeout).await;
    send_all(&world).await;
    let stats = world.request_elsewhere("GET", "/stats", &[], None).await;
    let stats = stats.json();
    assert_eq!(stats["agents"], 2);
    assert_eq!(stats["intentsProcessed"], 6);
    assert_eq!(stats["waitlistSize"], 0);
    assert!(stats["uptime"].is_u64() && stats["version"].is_string());
    let _socket = world.connect(&Identity::alice().beam_id).await;
    let health = world.get("/health").await.json();
    assert_eq!(health["ok"], true);
    assert_eq!(health["version"], "7.61", "the field of the root protocol");
    assert_eq!(health["status"], "ok");
    assert_eq!(health["protocol"], "beam/1");
    assert!(health["connectedAgents"].as_u64() >= Some(1), "{health}");
    assert!(health["uptimeSeconds"].is_u64());
    assert_eq!(health["db"], json!({"status": "ok"}));

    let mount = BeamMount::new(world.beam.clone(), ListenerPolicy::default());
    let mut text = MetricsText::default();
    mount.metrics(Operator::vouched(), &mut text).await.unwrap();
    let text = format!("{text:?}");
    for sample in [
        r#"consign_beam_intents{state=\"failed\"} 3"#,
        r#"consign_beam_messages{state=\"queued\"} 0"#,
        "consign_beam_feed_readers 0",
        "consign_beam_connected_agents ",
    ] {
        assert!(text.contains(sample), "{sample}: {text}");
    }
}
