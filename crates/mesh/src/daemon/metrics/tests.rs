//! The text of the metrics.

use super::*;

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|other| other == line)
}

#[test]
fn cm_115_every_metric_is_listed_with_its_type_and_labels() {
    let metrics = DaemonMetrics::new("team");
    metrics.count(DaemonMetric::HookInvocations, &["on-dm", "0"]);
    metrics.count(DaemonMetric::HookCapabilityCalls, &["on-dm", "reply:event"]);
    metrics.count(DaemonMetric::HookUnenforceable, &["on-dm", "network"]);
    metrics.count(DaemonMetric::IpcRequests, &["/v1/send", "202", "uds"]);
    metrics.count(DaemonMetric::ArchiveForceExpired, &["k_1"]);
    metrics.add(DaemonMetric::Dedupe, &["in"], 3);
    metrics.set(DaemonMetric::OutboxDepth, &["pending"], 2);
    metrics.observe(
        DaemonMetric::HookDuration,
        &["on-dm"],
        Duration::from_millis(20),
    );
    metrics.observe(
        DaemonMetric::IpcDuration,
        &["/v1/send"],
        Duration::from_mins(2),
    );
    let text = metrics.to_text();
    for line in [
        "# TYPE cm_daemon_connected gauge",
        "cm_daemon_connected{mesh=\"team\"} 0",
        "# TYPE cm_daemon_reconnects_total counter",
        "cm_daemon_reconnects_total{mesh=\"team\",reason=\"closed\"} 0",
        "cm_daemon_lag_ms{mesh=\"team\"} 0",
        "cm_daemon_outbox_depth{mesh=\"team\",status=\"pending\"} 2",
        "cm_daemon_outbox_depth{mesh=\"team\",status=\"inflight\"} 0",
        "cm_daemon_outbox_depth{mesh=\"team\",status=\"dead\"} 0",
        "cm_daemon_outbox_age_seconds{mesh=\"team\"} 0",
        "cm_daemon_dedupe_total{mesh=\"team\",direction=\"out\"} 0",
        "cm_daemon_dedupe_total{mesh=\"team\",direction=\"in\"} 3",
        "cm_daemon_disk_pct{mesh=\"team\",kind=\"inbox\"} 0",
        "cm_daemon_send_total{mesh=\"team\",kind=\"dm\",status=\"done\"} 0",
        "cm_daemon_recv_total{mesh=\"team\",kind=\"topic\",from_type=\"peer\"} 0",
        "cm_daemon_hook_invocations_total{hook=\"on-dm\",exit=\"0\"} 1",
        "# TYPE cm_daemon_hook_duration_seconds histogram",
        "cm_daemon_hook_duration_seconds_bucket{hook=\"on-dm\",le=\"0.01\"} 0",
        "cm_daemon_hook_duration_seconds_bucket{hook=\"on-dm\",le=\"0.025\"} 1",
        "cm_daemon_hook_duration_seconds_bucket{hook=\"on-dm\",le=\"+Inf\"} 1",
        "cm_daemon_hook_duration_seconds_count{hook=\"on-dm\"} 1",
        "cm_daemon_hook_capability_calls_total{hook=\"on-dm\",scope=\"reply:event\"} 1",
        "cm_daemon_hook_unenforceable_total{hook=\"on-dm\",reason=\"network\"} 1",
        "cm_daemon_ipc_request_total{endpoint=\"/v1/send\",status=\"202\",transport=\"uds\"} 1",
        "cm_daemon_ipc_duration_seconds_bucket{endpoint=\"/v1/send\",le=\"60\"} 0",
        "cm_daemon_ipc_duration_seconds_sum{endpoint=\"/v1/send\"} 120",
        "cm_daemon_local_token_rotations_total 0",
        "cm_daemon_clone_suspected_total 0",
        "cm_daemon_invalid_inbound_total 0",
        "cm_daemon_decrypt_archived_total 0",
        "cm_daemon_decrypt_stale_total 0",
        "cm_daemon_archive_force_expired_total{key_id=\"k_1\"} 1",
        "cm_daemon_dedupe_history_pruned_total 0",
        "cm_daemon_retry_after_dedupe_expired_total 0",
    ] {
        assert!(has(&text, line), "{line}\n{text}");
    }
    for &metric in DaemonMetric::ALL {
        let line = format!("# TYPE {} {}", metric.name(), metric.kind().as_str());
        assert!(has(&text, &line), "{line}");
    }
    assert_eq!(metrics.get(DaemonMetric::Dedupe, &["in"]), 3);
}

#[test]
fn the_number_of_series_has_a_bound_and_labels_are_escaped() {
    let metrics = DaemonMetrics::new("team");
    metrics.count(DaemonMetric::ArchiveForceExpired, &["a\"\\\n"]);
    for number in 0..2 * SERIES_MAX {
        metrics.count(DaemonMetric::ArchiveForceExpired, &[&number.to_string()]);
    }
    let text = metrics.to_text();
    let series = text
        .lines()
        .filter(|line| line.starts_with("cm_daemon_archive_force_expired_total{"));
    assert_eq!(series.count(), SERIES_MAX + 1);
    assert!(text.contains("{key_id=\"a\\\"\\\\\\n\"} 1"), "{text}");
    let others = metrics.get(DaemonMetric::ArchiveForceExpired, &["other"]);
    assert_eq!(others, u64::try_from(SERIES_MAX + 1).unwrap());
}
