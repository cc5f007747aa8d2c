//! The service as a whole: health, figures, status, checks, schedules and the facts of plugins.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::jobs::jobs;
use super::{operate, put, timestamp_json};
use crate::runtime::reads::{
    Health, JobStats, PluginStateInfo, PluginStatus, QueueFigures, ScheduleInFlight, ServiceCheck,
    ServiceStatus,
};
use crate::runtime::records::PluginFact;

/// The five fields that every health response has.
pub fn health(health: &Health) -> Map<String, Value> {
    let mut shown = Map::new();
    put(&mut shown, "status", Some("ok"));
    put(&mut shown, "uptime_seconds", Some(health.uptime_seconds));
    put(&mut shown, "queue_depth", Some(health.queue_depth));
    put(&mut shown, "plugins_loaded", Some(health.plugins_loaded));
    put(
        &mut shown,
        "plugins_circuit_open",
        Some(health.plugins_circuit_open),
    );
    shown
}

pub fn queue_figures(figures: &QueueFigures) -> Value {
    let lanes = figures.lanes.iter().map(|lane| {
        json!({"plugin": lane.plugin, "queued": lane.queued, "running": lane.running, "parallelism": lane.parallelism})
    });
    json!({
        "queue_depth": figures.queued,
        "running_count": figures.running,
        "delayed_count": figures.delayed,
        "dead_count": figures.dead,
        "active_jobs": jobs(&figures.active),
        "plugin_lanes": lanes.collect::<Vec<_>>(),
    })
}

pub fn job_stats(stats: &JobStats) -> Value {
    let counts = stats.counts.iter();
    let counts: BTreeMap<&str, u64> = counts.map(|(one, count)| (one.as_str(), *count)).collect();
    let mut shown = json!({"window": "24h", "stats": counts});
    if stats.is_capped {
        shown["capped"] = true.into();
    }
    shown
}

pub fn status(status: &ServiceStatus) -> Value {
    json!({
        "healthy": status.is_healthy(),
        "uptime_seconds": status.uptime_seconds,
        "config_path": status.config_path,
        "queue": {
            "queued": status.queued, "running": status.dispatched, "failed": status.failed, "dead": status.dead,
        },
        "running": status.running_here,
        "plugins": status.plugins.iter().map(plugin_status).collect::<Vec<_>>(),
        "checks": status.checks.iter().map(check).collect::<Vec<_>>(),
    })
}

fn plugin_status(plugin: &PluginStatus) -> Value {
    let mut shown = Map::new();
    put(&mut shown, "name", Some(plugin.name.clone()));
    put(&mut shown, "version", plugin.version.clone());
    put(&mut shown, "healthy", Some(plugin.healthy));
    put(&mut shown, "breaker", Some(plugin.breaker.as_str()));
    let updated_at = plugin.state_updated_at.map(timestamp_json);
    put(&mut shown, "state_updated_at", updated_at);
    match &plugin.state {
        Some(PluginStateInfo::Masked(state)) => put(&mut shown, "state", Some(state.clone())),
        Some(PluginStateInfo::TooLarge { bytes }) => {
            put(&mut shown, "state_left_out", Some(true));
            put(&mut shown, "state_bytes", Some(*bytes));
        }
        None => {}
    }
    let last_run = plugin.last_run.as_ref().map(|run| {
        json!({"job_id": run.job_id, "status": run.status.as_str(), "completed_at": timestamp_json(run.completed_at)})
    });
    put(&mut shown, "last_run", last_run);
    Value::Object(shown)
}

pub fn checks(checks: &[ServiceCheck]) -> Value {
    let healthy = checks.iter().all(|check| check.ok);
    json!({"healthy": healthy, "checks": checks.iter().map(check).collect::<Vec<_>>()})
}

fn check(check: &ServiceCheck) -> Value {
    match &check.detail {
        Some(detail) => json!({"name": check.name, "ok": check.ok, "detail": detail}),
        None => json!({"name": check.name, "ok": check.ok}),
    }
}

pub fn scheduler_jobs(schedules: &[ScheduleInFlight]) -> Value {
    let shown = schedules.iter().map(|schedule| {
        let mut shown = operate::schedule(&schedule.schedule);
        shown["in_flight"] = schedule.jobs.clone().into();
        if schedule.is_capped {
            shown["in_flight_capped"] = true.into();
        }
        shown
    });
    json!({"jobs": shown.collect::<Vec<_>>()})
}

pub fn plugin_facts(plugin: &str, facts: &[PluginFact]) -> Value {
    json!({"plugin": plugin, "facts": facts})
}
