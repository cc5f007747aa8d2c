//! `config.toml` of a daemon: every setting with its default, and what is refused.
//!
//! Invariant: a file that is read has only known keys, and every number is within its limits; so a typing error is reported
//! at the start and not found in an outage. Settings whose default depends on the machine are `None` here.

mod byte_size;
mod hooks;
mod sections;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use consign_client::Address;
use serde::Deserialize;

pub use byte_size::ByteSize;
pub use hooks::{FsPolicy, HookSandbox, HookSettings, HooksFile, NetworkPolicy};
pub use sections::{
    CapabilitySettings, CloneMismatch, CloneSettings, CryptoSettings, DaemonSettings, DiskSettings,
    FeatureSettings, FleetSettings, FsyncMode, HookDefaults, HostFingerprintSettings,
    InboxSettings, IntentServerSettings, IpcSettings, MeshMetricsSettings, OutboxSettings,
    ReconnectSettings,
};

use crate::environment::HostEnvironment;
use crate::features::FeatureNeeds;
use crate::limits::{DEDUPE_DAYS_MIN, INTENT_AGE_HOURS_MAX, KEY_GRACE_DAYS_MAX};
use crate::max_age::MaxAgeSettings;

/// The settings of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    pub daemon: DaemonSettings,
    pub ipc: IpcSettings,
    pub outbox: OutboxSettings,
    pub intents: IntentServerSettings,
    pub inbox: InboxSettings,
    pub reconnect: ReconnectSettings,
    pub hooks: HookDefaults,
    pub metrics: MeshMetricsSettings,
    pub capabilities: CapabilitySettings,
    pub fleet: FleetSettings,
    pub disk: DiskSettings,
    pub clone: CloneSettings,
    pub crypto: CryptoSettings,
    pub features: FeatureSettings,
    pub host_fingerprint: HostFingerprintSettings,
}

/// A file that is refused; the daemon exits with 3.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DaemonConfigError {
    /// The message names line and column.
    #[error("{0}")]
    Syntax(String),
    #[error("{key}: {rule}")]
    Value {
        key: &'static str,
        rule: &'static str,
    },
}

impl DaemonConfig {
    pub fn parse(text: &str) -> Result<Self, DaemonConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| DaemonConfigError::Syntax(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), DaemonConfigError> {
        let bind: Option<IpAddr> = self.ipc.http_bind.parse().ok();
        let is_loopback = bind.is_some_and(|address| address.is_loopback());
        let rules = [
            (bind.is_some(), "ipc.http_bind", "must be an address"),
            (
                is_loopback || self.ipc.http_external_auth.is_some(),
                "ipc.http_bind",
                "another address than loopback needs ipc.http_external_auth",
            ),
            (
                self.ipc.uds_permissions().is_some(),
                "ipc.uds_mode",
                "must be octal digits such as 0600",
            ),
            (
                self.ipc
                    .uds_permissions()
                    .is_none_or(|mode| mode.trailing_zeros() >= 6),
                "ipc.uds_mode",
                "must not open the socket to other users",
            ),
            (
                self.ipc
                    .uds_permissions()
                    .is_none_or(|mode| mode & 0o600 == 0o600),
                "ipc.uds_mode",
                "must let the owner read and write",
            ),
            (
                !is_loopback || self.ipc.http_external_auth.is_none(),
                "ipc.http_external_auth",
                "is for another address than loopback in ipc.http_bind",
            ),
            (
                !self.inbox.fts_enabled,
                "inbox.fts_enabled",
                "is not offered; GET /v1/inbox filters by time, topic and sender",
            ),
            (
                self.metrics.otel_endpoint.is_empty(),
                "metrics.otel_endpoint",
                "is not offered; let a collector read GET /v1/metrics",
            ),
            (
                self.capabilities.all_are_offered(),
                "capabilities",
                "of these the daemon offers state only",
            ),
            (
                self.ipc.max_body_bytes > 0,
                "ipc.max_body_bytes",
                "must be at least 1",
            ),
            (
                self.ipc.max_inflight > 0,
                "ipc.max_inflight",
                "must be at least 1",
            ),
            (
                self.ipc.rate_per_s > 0,
                "ipc.rate_per_s",
                "must be at least 1",
            ),
            (
                self.ipc.rate_burst > 0,
                "ipc.rate_burst",
                "must be at least 1",
            ),
            (
                self.outbox.max_queue_size > 0,
                "outbox.max_queue_size",
                "must be at least 1",
            ),
            (
                self.outbox.max_age_hours > 0,
                "outbox.max_age_hours",
                "must be at least 1",
            ),
            (
                self.outbox.max_age_hours <= self.outbox.max_age_hours_cap,
                "outbox.max_age_hours",
                "must not be above outbox.max_age_hours_cap",
            ),
            (
                self.outbox.max_age_hours_override != Some(0),
                "outbox.max_age_hours_override",
                "must be at least 1",
            ),
            (
                self.outbox.min_dedupe_retention_days >= DEDUPE_DAYS_MIN,
                "outbox.min_dedupe_retention_days",
                "must be at least 3",
            ),
            (
                self.intents
                    .url
                    .as_deref()
                    .is_none_or(|url| Address::parse(url).is_ok()),
                "intents.url",
                "must be http:// or https:// with a host, perhaps a port and the path of a reverse proxy, and nothing else",
            ),
            (
                (1..=INTENT_AGE_HOURS_MAX).contains(&self.intents.max_age_hours),
                "intents.max_age_hours",
                "must be 1 to 23, because the server remembers ids for 24 hours",
            ),
            (
                self.inbox.retention_days > 0,
                "inbox.retention_days",
                "must be at least 1",
            ),
            (
                self.reconnect.initial_backoff_ms > 0,
                "reconnect.initial_backoff_ms",
                "must be at least 1",
            ),
            (
                self.reconnect.max_backoff_ms >= self.reconnect.initial_backoff_ms,
                "reconnect.max_backoff_ms",
                "must not be below reconnect.initial_backoff_ms",
            ),
            (
                (1.0..=100.0).contains(&self.reconnect.backoff_multiplier),
                "reconnect.backoff_multiplier",
                "must be 1 to 100",
            ),
            (
                self.reconnect.jitter_pct <= 100,
                "reconnect.jitter_pct",
                "must be 0 to 100",
            ),
            (
                self.hooks.concurrency > 0,
                "hooks.concurrency",
                "must be at least 1",
            ),
            (
                self.hooks.default_timeout_s > 0,
                "hooks.default_timeout_s",
                "must be at least 1",
            ),
            (
                self.fleet.max_daemons > 0,
                "fleet.max_daemons",
                "must be at least 1",
            ),
            (
                self.crypto.key_grace_period_days <= KEY_GRACE_DAYS_MAX,
                "crypto.key_grace_period_days",
                "must be at most 30",
            ),
            (
                self.crypto.max_archived_keys > 0,
                "crypto.max_archived_keys",
                "must be at least 1",
            ),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, key, rule)) => Err(DaemonConfigError::Value { key, rule }),
            None => Ok(()),
        }
    }

    /// Whether the loopback listener is open: as set, else not in containers and CI.
    pub fn tcp_enabled(&self, environment: &HostEnvironment) -> bool {
        let default = !environment.is_container() && !environment.is_ci;
        self.ipc.tcp_enabled.unwrap_or(default)
    }

    /// Whether hooks run: as set, else not in CI.
    pub fn hooks_enabled(&self, environment: &HostEnvironment) -> bool {
        self.hooks.enabled.unwrap_or(!environment.is_ci)
    }

    /// How large the outbox may become: as set, and at most an even share of what the daemons of all joined meshes may use.
    pub fn disk_limit(&self, joined_meshes: usize) -> ByteSize {
        let daemons = joined_meshes.clamp(1, self.fleet.max_daemons.max(1));
        let share = self.fleet.disk_per_daemon(daemons);
        self.disk.reserved_bytes.min(share)
    }

    pub fn needs(&self) -> FeatureNeeds {
        FeatureNeeds {
            require: self.features.require.clone(),
            optional: self.features.optional.clone(),
            dedupe_days_min: self.outbox.min_dedupe_retention_days,
        }
    }

    pub const fn max_age(&self) -> MaxAgeSettings {
        MaxAgeSettings {
            permanent_hours: self.outbox.max_age_hours,
            permanent_hours_cap: self.outbox.max_age_hours_cap,
            override_hours: self.outbox.max_age_hours_override,
        }
    }
}
