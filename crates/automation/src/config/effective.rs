//! The effective configuration for display: every key with its value, given or default.
//!
//! Invariant: written values stay as written; only missing keys are added. Secrets are masked.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::model::{Config, LogLevel, PluginConfig, ServiceConfig};

const COMMANDS: [&str; 4] = ["poll", "handle", "health", "init"];
/// Largest unit first; the last one always fits.
const UNITS: [(u128, &str); 5] = [
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "m"),
    (1_000, "s"),
    (1, "ms"),
];

impl Config {
    pub fn effective(&self, mask: &str) -> Value {
        let mut shown = self.shown(mask);
        let mut whole = json!({
            "service": service(&self.service),
            "state": {},
            "plugin_roots": [],
            "plugins": {},
            "routes": [],
            "pipelines": [],
            "tokens": [],
            "api": {
                "enabled": self.api.enabled,
                "listen": self.api.listen,
                "max_concurrent_sync": self.api.max_concurrent_sync,
                "max_sync_timeout": format_duration(self.api.max_sync_timeout),
                "allowed_origins": self.api.allowed_origins,
            },
        });
        // The older key `database.path` is left as written.
        if shown["database"]["path"].is_null() {
            whole["state"]["path"] = json!(self.state_path);
        }
        for (name, given) in &self.plugins {
            whole["plugins"][name] = plugin(given);
        }
        fill(&mut shown, whole);
        shown
    }
}

/// Adds missing keys at any depth of maps.
fn fill(shown: &mut Value, defaults: Value) {
    match (shown, defaults) {
        (Value::Object(shown), Value::Object(defaults)) => {
            for (key, default) in defaults {
                fill(shown.entry(key).or_insert(Value::Null), default);
            }
        }
        (shown @ Value::Null, default) => *shown = default,
        (_, _) => {}
    }
}

fn service(service: &ServiceConfig) -> Value {
    let level = match service.log_level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    json!({
        "name": service.name,
        "tick_interval": format_duration(service.tick_interval),
        "log_level": level,
        "log_format": if service.log_json { "json" } else { "text" },
        "dedupe_ttl": format_duration(service.dedupe_ttl),
        "job_log_retention": format_duration(service.job_log_retention),
        "job_queue_retention": format_duration(service.job_queue_retention),
        "job_transitions_retention": format_duration(service.job_transitions_retention),
        "job_attempts_retention": format_duration(service.job_attempts_retention),
        "breaker_transitions_retention": format_duration(service.breaker_transitions_retention),
        "max_workers": service.max_workers,
        "admission": {
            "verify_integrity_on_boot": service.verify_integrity_on_boot,
            "fail_on_drift": service.strictness.drift,
            "validate_config_on_boot": service.strictness.validation,
            "require_api_auth": service.require_api_auth,
        },
        "allow_symlinks": service.allow_symlinks,
        "hook_max_depth": service.hook_max_depth,
        "plugin_env_passthrough": service.plugin_env_passthrough,
    })
}

fn plugin(plugin: &PluginConfig) -> Value {
    let timeouts = COMMANDS.map(|command| {
        let timeout = format_duration(plugin.timeouts.of(command));
        (command.to_owned(), Value::from(timeout))
    });
    json!({
        "enabled": plugin.enabled,
        "config": {},
        "schedules": [],
        "max_outstanding_polls": plugin.max_outstanding_polls,
        "timeouts": timeouts.into_iter().collect::<Map<_, _>>(),
        "retry": {
            "max_attempts": plugin.retry.max_attempts,
            "backoff_base": format_duration(plugin.retry.backoff_base),
        },
        "circuit_breaker": {
            "threshold": plugin.circuit_breaker.threshold,
            "reset_after": format_duration(plugin.circuit_breaker.reset_after),
        },
        "notify_on_complete": plugin.notify_on_complete,
    })
}

/// In the largest unit that divides the duration.
fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let mut units = UNITS.into_iter();
    let fits = units.find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    let (unit, name) = fits.unwrap_or((1, "ms"));
    format!("{}{name}", ms / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    #[test]
    fn a_duration_is_written_as_it_can_be_read() {
        for (ms, text) in [
            (0, "0ms"),
            (1, "1ms"),
            (1_500, "1500ms"),
            (60_000, "1m"),
            (90_000, "90s"),
            (86_400_000, "1d"),
            (129_600_000, "36h"),
        ] {
            let duration = Duration::from_millis(ms);
            assert_eq!(format_duration(duration), text);
            assert_eq!(scalar::duration(text).unwrap(), duration);
        }
    }

    #[test]
    fn what_is_written_stays_and_what_is_missing_is_added() {
        let mut shown = json!({"a": {"x": 1}, "b": null, "list": [1]});
        fill(
            &mut shown,
            json!({"a": {"x": 2, "y": 3}, "b": "b", "list": [], "c": {}}),
        );
        let expected = json!({"a": {"x": 1, "y": 3}, "b": "b", "list": [1], "c": {}});
        assert_eq!(shown, expected);
    }
}
