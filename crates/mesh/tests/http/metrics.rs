//! The metrics of the broker, with the names of the protocol.

use std::collections::BTreeMap;

use serde_json::json;

use crate::world::{METRICS, World, key};

/// The samples of the server, by name and labels.
pub(crate) async fn read(world: &World) -> BTreeMap<String, i64> {
    let bearer = format!("Bearer {METRICS}");
    let headers = [("authorization", bearer.as_str())];
    let answer = world.request("GET", "/metrics", &headers, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let lines = answer.text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    samples
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

#[tokio::test]
async fn cm_115_cm_053_accepted_repeated_and_refused_messages_are_counted() {
    let world = World::new();
    let mesh = world
        .mesh(&json!({"dedupe_days": 3, "message_days": 30}))
        .await;
    let alice = world.member(1, "alice").await;
    world.member(2, "bob").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    let dm = |text: &str| {
        json!({
            "destination_kind": "dm", "destination_ref": key(2), "body": text, "client_message_id": "m-1",
        })
    };
    world.send(&api_key, &dm("hi")).await.of(201);
    world.send(&api_key, &dm("hi")).await.of(200);
    world.send(&api_key, &dm("ho")).await.of(409);
    let samples = read(&world).await;
    for (name, value) in [
        ("broker_messages_routed_total{priority=\"next\"}", 1),
        (
            "broker_messages_rejected_total{reason=\"idempotency_key_reused\"}",
            1,
        ),
        ("broker_queue_depth", 1),
        ("broker_db_healthy", 1),
        ("broker_connections_active", 0),
        ("broker_connections_total", 0),
        ("broker_messages_dropped_by_grant_total", 0),
        ("broker_ttl_sweeps_total", 0),
        ("broker_hook_requests_total", 0),
        ("broker_hook_requests_rate_limited_total", 0),
        ("cm_broker_dedupe_orphan_check_total", 0),
        ("cm_broker_atomicity_violation_found", 0),
        ("cm_broker_rate_limit_consumed_then_b2_rejected_total", 0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    let mismatch = format!(
        "cm_broker_dedupe_fingerprint_mismatch_total{{client_id=\"{alice}\",mesh_id=\"{mesh}\"}}"
    );
    assert_eq!(samples.get(&mismatch), Some(&1), "{samples:?}");
    // Ids end before messages here, which the daily run counts.
    let mut seen = consign_kernel::ids::FactSeq(0);
    world.broker.run_if_due(&mut seen).await.unwrap();
    let samples = read(&world).await;
    let misconfigured = format!(
        "cm_broker_dedupe_misconfig_total{{mesh_id=\"{mesh}\",retention_dedupe_days=\"3\",retention_message_days=\"30\"}}"
    );
    assert_eq!(samples.get(&misconfigured), Some(&1), "{samples:?}");
    assert_eq!(samples["broker_ttl_sweeps_total"], 1);
}
