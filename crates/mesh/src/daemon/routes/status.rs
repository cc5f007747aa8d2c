//! What the daemon says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::response::Response;
use serde_json::Map;

use super::{RouteAnswer, json, respond};
use crate::daemon::accept::{file_bytes, unavailable};
use crate::daemon::folder::SCHEMA_VERSION;
use crate::daemon::metrics::DaemonMetric;
use crate::daemon::shared::{DaemonShared, wall_ms};
use crate::ipc::{CompatAnswer, HealthAnswer, IpcRefusal, VersionAnswer};
use crate::outbox::QueuePressure;

/// The version that clients compare; the compatible ones are in [`CompatAnswer`].
const DAEMON_VERSION: &str = "0.9.0";

pub(super) async fn health(shared: &Arc<DaemonShared>) -> RouteAnswer {
    let tally = shared.outbox.tally().await;
    let tally = tally.map_err(|error| unavailable(&error))?;
    let line = shared.line();
    let (pressure, _) = shared.queue_pressure(tally.pending + tally.inflight).await;
    let state = shared.line.borrow().as_str().to_owned();
    let lag_ms = shared.lag_ms.load(Ordering::Relaxed);
    json(
        200,
        &HealthAnswer {
            ok: true,
            connected: line.is_some(),
            degraded: pressure == QueuePressure::Degraded,
            lag_ms: line.as_ref().map(|_| lag_ms),
            queue_depth: tally.pending,
            inflight: tally.inflight,
            dead: tally.dead,
            mesh: shared.slug.to_string(),
            member_pubkey: shared.keys().identity.key.public_key().to_string(),
            uptime_s: shared.started.elapsed().as_secs(),
            schema_version: SCHEMA_VERSION,
            daemon_version: DAEMON_VERSION.to_owned(),
            broker_version: line.and_then(|line| line.terms.broker_version.clone()),
            pid: std::process::id(),
            brokers: BTreeMap::from([(shared.slug.to_string(), state)]),
            last_error: shared.line_error(),
        },
    )
}

pub(super) fn version(shared: &Arc<DaemonShared>) -> RouteAnswer {
    let line = shared.line();
    let terms = line.as_ref().map(|line| &line.terms);
    let features = VersionAnswer::FEATURES.iter();
    json(
        200,
        &VersionAnswer {
            daemon_version: DAEMON_VERSION.to_owned(),
            ipc_api: VersionAnswer::API.to_owned(),
            ipc_minor: 0,
            ipc_features: features.map(|&feature| feature.to_owned()).collect(),
            schema_version: SCHEMA_VERSION,
            mesh: shared.slug.to_string(),
            broker_features_negotiated: terms
                .map(|terms| terms.features.clone())
                .unwrap_or_default(),
            broker_feature_params: terms.map_or_else(Map::new, |terms| terms.parameters.clone()),
            outbox_max_age_hours: terms.and_then(|terms| terms.max_age).map(|age| age.hours),
        },
    )
}

pub(super) fn compat(shared: &Arc<DaemonShared>) -> RouteAnswer {
    json(200, &CompatAnswer::new(&shared.config().features.require))
}

pub(super) async fn metrics(shared: &Arc<DaemonShared>) -> Response {
    let config = shared.config();
    if !config.metrics.prometheus_enabled {
        return super::refused(&IpcRefusal::not_found());
    }
    let metrics = &shared.metrics;
    // Without the tally the gauges keep their last values.
    if let Ok(tally) = shared.outbox.tally().await {
        for (status, rows) in [
            ("pending", tally.pending),
            ("inflight", tally.inflight),
            ("dead", tally.dead),
        ] {
            metrics.set(DaemonMetric::OutboxDepth, &[status], rows);
        }
        let age_ms = tally
            .oldest_pending_at
            .map_or(0, |oldest| wall_ms().saturating_sub(oldest).max(0));
        let age_s = age_ms.unsigned_abs() / 1_000;
        metrics.set(DaemonMetric::OutboxAge, &[], age_s);
    }
    let lag_ms = shared.lag_ms.load(Ordering::Relaxed);
    metrics.set(DaemonMetric::LagMs, &[], lag_ms);
    let reserved = shared.disk_limit().max(1);
    let inbox = Arc::clone(&shared.inbox);
    let inbox_free = tokio::task::spawn_blocking(move || inbox.free_bytes().ok());
    // What cannot be read counts as used.
    let inbox_free = inbox_free.await.ok().flatten().unwrap_or(0);
    let outbox_free = shared.outbox.free_bytes().await.unwrap_or(0);
    for (kind, path, free) in [
        ("outbox", shared.folder.outbox(), outbox_free),
        ("inbox", shared.folder.inbox(), inbox_free),
    ] {
        let used = file_bytes(&path).saturating_sub(free);
        let percent = used.saturating_mul(100) / reserved;
        metrics.set(DaemonMetric::DiskPct, &[kind], percent);
    }
    respond(200, "text/plain; version=0.0.4", metrics.to_text())
}
