//! The configuration as the runtime uses it: every key has a value, given or default.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use serde_json::{Map, Value};

use super::node::ConfigNode;
use super::problem::SourcePosition;
use super::redact;
use super::registry::TokenRegistry;
use super::sources::SourceFile;
use crate::plugin::confine::Confinement;

/// Schedules, routes and pipelines stay unparsed; the modules that run them parse them.
pub struct Config {
    pub path: PathBuf,
    /// The directory of `path`: the base of relative paths.
    pub dir: PathBuf,
    pub service: ServiceConfig,
    pub state_path: PathBuf,
    pub api: ApiConfig,
    pub plugin_roots: Vec<PathBuf>,
    pub plugins: BTreeMap<String, PluginConfig>,
    pub routes: Vec<ConfigNode>,
    pub pipelines: Vec<ConfigNode>,
    pub webhooks: Option<WebhooksConfig>,
    pub received: Vec<ReceivedMessages>,
    pub received_items: Vec<ReceivedItems>,
    pub tokens: Vec<TokenEntry>,
    pub registry: TokenRegistry,
    pub files: Vec<SourceFile>,
    pub(crate) merged: ConfigNode,
}

impl Config {
    /// The value of a named secret.
    pub fn secret(&self, name: &str) -> Option<&ConfigSecret> {
        let token = self.tokens.iter().find(|token| token.name == name)?;
        Some(&token.key)
    }

    /// Formats a value as YAML.
    pub fn as_yaml(value: &Value) -> String {
        serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
    }

    /// The merged configuration for display: secrets and substituted values are replaced by `mask`.
    pub fn shown(&self, mask: &str) -> Value {
        redact::masked(&self.merged.json_unfilled(mask), mask)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.path)
            .field("service", &self.service)
            .field("plugins", &self.plugins.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own in the file"
)]
pub struct ServiceConfig {
    pub name: String,
    pub tick_interval: Duration,
    pub log_level: LogLevel,
    pub log_json: bool,
    pub dedupe_ttl: Duration,
    pub job_log_retention: Duration,
    pub job_queue_retention: Duration,
    pub job_transitions_retention: Duration,
    pub job_attempts_retention: Duration,
    pub breaker_transitions_retention: Duration,
    pub max_workers: usize,
    pub strictness: Strictness,
    pub verify_integrity_on_boot: bool,
    pub require_api_auth: bool,
    pub allow_symlinks: bool,
    pub hook_max_depth: usize,
    pub plugin_env_passthrough: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Which warnings prevent a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strictness {
    /// A file differs from its seal.
    pub drift: bool,
    /// Any other warning.
    pub validation: bool,
}

#[derive(Clone, Debug)]
pub struct ApiConfig {
    pub enabled: bool,
    pub listen: String,
    pub max_concurrent_sync: usize,
    pub max_sync_timeout: Duration,
    pub allowed_origins: Vec<String>,
}

#[derive(Clone)]
pub struct PluginConfig {
    pub at: SourcePosition,
    pub enabled: bool,
    /// The plugin whose program this one runs.
    pub uses: Option<String>,
    /// Sent to the plugin unchanged.
    pub config: Map<String, Value>,
    pub schedules: Vec<ConfigNode>,
    /// If absent, the manifest decides.
    pub parallelism: Option<usize>,
    pub max_outstanding_polls: usize,
    pub timeouts: Timeouts,
    pub retry: RetryPolicy,
    pub circuit_breaker: CircuitBreaker,
    pub notify_on_complete: bool,
    pub serves: Vec<ServedGoal>,
    /// Resource limits and sandbox of its processes.
    pub confinement: Confinement,
}

/// A goal of the Intent Protocol whose intents a command fulfils.
#[derive(Clone, Debug)]
pub struct ServedGoal {
    pub at: SourcePosition,
    pub goal: String,
    pub namespace: String,
    pub command: String,
    /// A capability that intents may require.
    pub capability: Option<String>,
}

impl fmt::Debug for PluginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginConfig")
            .field("enabled", &self.enabled)
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeouts(pub(super) BTreeMap<String, Duration>);

impl Timeouts {
    /// The timeout per command.
    pub fn of(&self, command: &str) -> Duration {
        let own = self.0.get(command).copied();
        let own = own.filter(|_| !plant::on(Plant::DefaultDeadline));
        own.unwrap_or_else(|| {
            Duration::from_secs(match command {
                "handle" => 120,
                "health" => 10,
                "init" => 30,
                _ => 60,
            })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub max_attempts: usize,
    pub backoff_base: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            backoff_base: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    pub threshold: usize,
    pub reset_after: Duration,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self {
            threshold: 3,
            reset_after: Duration::from_mins(30),
        }
    }
}

#[derive(Clone, Debug)]
pub struct WebhooksConfig {
    pub listen: Option<String>,
    pub endpoints: Vec<WebhookEndpoint>,
}

#[derive(Clone, Debug)]
pub struct WebhookEndpoint {
    pub at: SourcePosition,
    pub name: Option<String>,
    pub path: String,
    pub target: EndpointTarget,
    pub secret: ConfigSecret,
    pub signature_header: String,
    pub max_body_bytes: u64,
}

/// What a webhook does with a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointTarget {
    /// Creates an event for this plugin.
    Plugin(String),
    /// Publishes an intent.
    Publish(IntentTemplate),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentTemplate {
    pub goal: String,
    pub namespace: String,
    pub attempts_max: u32,
    /// The header that identifies a repeated delivery.
    pub delivery_header: String,
}

/// The messages of an agent of Beam that become events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessages {
    pub at: SourcePosition,
    /// The Beam-ID of the recipient.
    pub agent: String,
    pub intent: String,
    /// The type of the event.
    pub event: String,
}

/// The work of a mesh that becomes events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedItems {
    pub at: SourcePosition,
    pub source: MeshSource,
    /// The type of the event.
    pub event: String,
}

/// A topic or a named queue of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshSource {
    /// The short name of the mesh.
    pub mesh: String,
    pub feed: MeshFeed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshFeed {
    /// Every post is received, in the queue that the topic fills for automations.
    Topic(String),
    /// Every item is received, unless another worker of the queue takes it.
    Queue(String),
}

impl fmt::Display for MeshSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.feed {
            MeshFeed::Topic(topic) => write!(f, "topic {topic} of mesh {}", self.mesh),
            MeshFeed::Queue(queue) => write!(f, "queue {queue} of mesh {}", self.mesh),
        }
    }
}

/// An entry of `tokens`: a named secret, and a bearer token if it has scopes.
#[derive(Clone, Debug)]
pub struct TokenEntry {
    pub at: SourcePosition,
    pub name: String,
    pub key: ConfigSecret,
    pub scopes_file: Option<PathBuf>,
    pub description: Option<String>,
    pub created_at: Option<String>,
}

/// A secret value: `Debug` hides it, and there is no comparison that leaks timing.
#[derive(Clone)]
pub struct ConfigSecret(String);

impl ConfigSecret {
    pub(super) fn new(value: String) -> Self {
        Self(value)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConfigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(redact::MASK)
    }
}
