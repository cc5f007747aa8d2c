//! The sections of `config.toml` with their defaults.

use std::path::PathBuf;

use serde::Deserialize;

use super::ByteSize;
use crate::features::{OPTIONAL, REQUIRED};
use crate::id::MeshSlug;
use crate::limits;
use crate::role::DaemonCapability;

/// Declares sections: each key with its type and its default.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $key:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    )*};
}

sections! {
    /// `[daemon]`.
    DaemonSettings {
        /// Set at the first start, and then fixed.
        mesh: Option<MeshSlug> = None,
        display_name: Option<String> = None,
        log_level: String = "info".to_owned(),
    }

    /// `[ipc]`.
    IpcSettings {
        /// 0 lets the system choose.
        http_port: u16 = 0,
        http_bind: String = "127.0.0.1".to_owned(),
        uds_mode: String = "0600".to_owned(),
        /// Depends on the machine if it is not set.
        tcp_enabled: Option<bool> = None,
        public_health_check: bool = false,
        /// A file with the token for an address other than loopback; a relative path begins in the folder of the daemon.
        http_external_auth: Option<String> = None,
        origin_allowlist: Vec<String> = Vec::new(),
        max_body_bytes: usize = limits::IPC_BODY_BYTES_MAX,
        max_inflight: usize = limits::IPC_IN_FLIGHT_MAX,
        max_sse: usize = limits::SSE_STREAMS_MAX,
        rate_per_s: u32 = limits::IPC_REQUESTS_PER_SECOND,
        rate_burst: u32 = limits::IPC_REQUEST_BURST,
    }

    /// `[outbox]`.
    OutboxSettings {
        /// Counts pending and in-flight rows.
        max_queue_size: u64 = 10_000,
        fsync_mode: FsyncMode = FsyncMode::Batched,
        /// For brokers that never forget an id.
        max_age_hours: u32 = 168,
        max_age_hours_cap: u32 = 720,
        max_age_hours_override: Option<u32> = None,
        min_dedupe_retention_days: u32 = limits::DEDUPE_DAYS_MIN,
    }

    /// `[intents]`: where intents of the Intent Protocol are published.
    IntentServerSettings {
        /// `http://` or `https://`, host and port; follows from the broker's address if it is not set.
        url: Option<String> = None,
        /// A file with an API key of the server; relative to the folder of the daemon. Without it nothing is published.
        api_key_file: Option<PathBuf> = None,
        /// Longer than this, an intent is not tried: the server remembers its id for 24 hours.
        max_age_hours: u32 = limits::INTENT_AGE_HOURS_MAX,
    }

    /// `[inbox]`.
    InboxSettings {
        retention_days: u32 = 30,
        fts_enabled: bool = false,
    }

    /// `[reconnect]`.
    ReconnectSettings {
        initial_backoff_ms: u64 = limits::BACKOFF_MIN_MS,
        max_backoff_ms: u64 = limits::BACKOFF_MAX_MS,
        backoff_multiplier: f64 = 2.0,
        jitter_pct: u8 = 25,
    }

    /// `[hooks]`.
    HookDefaults {
        /// Off in CI if it is not set.
        enabled: Option<bool> = None,
        concurrency: usize = limits::HOOK_POOL,
        default_timeout_s: u64 = limits::HOOK_TIMEOUT_S,
        stdin_limit_bytes: usize = limits::HOOK_STDIN_BYTES_MAX,
    }

    /// `[metrics]`.
    MeshMetricsSettings {
        prometheus_enabled: bool = true,
        otel_endpoint: String = String::new(),
    }

    /// `[capabilities]`: all off.
    CapabilitySettings {
        state: bool = false,
        memory: bool = false,
        vector: bool = false,
        graph: bool = false,
        tasks: bool = false,
        scheduling: bool = false,
        mcp_host: bool = false,
        skill_share: bool = false,
        inbox_fts: bool = false,
    }

    /// `[fleet]`: limits over the daemons of one user.
    FleetSettings {
        max_daemons: usize = 10,
        total_memory_budget: ByteSize = ByteSize::gigabytes(2),
        total_disk_budget: ByteSize = ByteSize::gigabytes(20),
    }

    /// `[disk]`.
    DiskSettings {
        reserved_bytes: ByteSize = ByteSize::gigabytes(5),
    }

    /// `[clone]`.
    CloneSettings {
        policy: CloneMismatch = CloneMismatch::Refuse,
    }

    /// `[crypto]`.
    CryptoSettings {
        key_grace_period_days: u32 = limits::KEY_GRACE_DAYS_DEFAULT,
        max_archived_keys: usize = limits::ARCHIVED_KEYS_MAX,
    }

    /// `[features]`.
    FeatureSettings {
        require: Vec<String> = REQUIRED.iter().map(|&name| name.to_owned()).collect(),
        optional: Vec<String> = OPTIONAL.iter().map(|&name| name.to_owned()).collect(),
    }

    /// `[host_fingerprint]`.
    HostFingerprintSettings {
        /// Takes the place of the machine's own id.
        id_override: Option<String> = None,
    }
}

/// When a row is on disk. The answer always waits for it: requests that arrive together share one sync in both modes that are
/// offered, and `off` is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FsyncMode {
    #[serde(rename = "strict")]
    Strict,
    #[serde(rename = "batched_50ms")]
    Batched,
    #[serde(rename = "off")]
    Off,
}

/// What a daemon does when it finds itself on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneMismatch {
    Refuse,
    Warn,
    Allow,
}

impl IpcSettings {
    /// The permission bits of the socket file; `None` if the text is not octal.
    pub fn uds_permissions(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.uds_mode, 8).ok();
        mode.filter(|mode| *mode <= 0o777)
    }
}

impl CapabilitySettings {
    /// Whether only such parts are on that exist.
    pub fn all_are_offered(&self) -> bool {
        let mut on = DaemonCapability::ALL.iter().filter(|one| self.has(**one));
        on.all(|one| *one == DaemonCapability::State)
    }

    pub const fn has(&self, capability: DaemonCapability) -> bool {
        match capability {
            DaemonCapability::State => self.state,
            DaemonCapability::Memory => self.memory,
            DaemonCapability::Vector => self.vector,
            DaemonCapability::Graph => self.graph,
            DaemonCapability::Tasks => self.tasks,
            DaemonCapability::Scheduling => self.scheduling,
            DaemonCapability::McpHost => self.mcp_host,
            DaemonCapability::SkillShare => self.skill_share,
            DaemonCapability::InboxFts => self.inbox_fts,
        }
    }
}

impl FleetSettings {
    /// The memory of each daemon if this many run.
    pub fn memory_per_daemon(&self, daemons: usize) -> ByteSize {
        share(self.total_memory_budget, daemons)
    }

    /// The space on the disk of each daemon if there are this many.
    pub fn disk_per_daemon(&self, daemons: usize) -> ByteSize {
        share(self.total_disk_budget, daemons)
    }
}

fn share(ByteSize(total): ByteSize, daemons: usize) -> ByteSize {
    let daemons = u64::try_from(daemons.max(1)).unwrap_or(u64::MAX);
    ByteSize(total / daemons)
}
