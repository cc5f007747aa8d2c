//! The configuration as the rest of the runtime uses it: every key has its value, given or by default.

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

/// Schedules, routes and pipelines stay as they were written; who runs them gives them their meaning.
pub struct Config {
    pub path: PathBuf,
    /// The directory of `path`: where relative paths start.
    pub dir: PathBuf,
    pub service: ServiceConfig,
    pub state_path: PathBuf,
    pub api: ApiConfig,
    pub plugin_roots: Vec<PathBuf>,
    pub plugins: BTreeMap<String, PluginConfig>,
    pub routes: Vec<ConfigNode>,
    pub pipelines: Vec<ConfigNode>,
    pub webhooks: Option<WebhooksConfig>,
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

    /// The same as YAML.
    pub fn as_yaml(value: &Value) -> String {
        serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
    }

    /// The merged configuration for people to look at: what is secret, and what a variable filled in, reads `mask`.
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

/// Which warnings keep the service from starting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strictness {
    /// A file that is not what it was when it was sealed.
    pub drift: bool,
    /// Anything else that is only odd.
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
    /// Sent to the plugin as it is.
    pub config: Map<String, Value>,
    pub schedules: Vec<ConfigNode>,
    /// Without a value the manifest decides.
    pub parallelism: Option<usize>,
    pub max_outstanding_polls: usize,
    pub timeouts: Timeouts,
    pub retry: RetryPolicy,
    pub circuit_breaker: CircuitBreaker,
    pub notify_on_complete: bool,
    pub serves: Vec<ServedGoal>,
    /// What its processes get less of than the service has.
    pub confinement: Confinement,
}

/// A goal of the Intent Protocol whose intents a command fulfils.
#[derive(Clone, Debug)]
pub struct ServedGoal {
    pub at: SourcePosition,
    pub goal: String,
    pub namespace: String,
    pub command: String,
    /// What the plugin can do beyond what any worker can.
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
    /// How long a command may run.
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
    /// All attempts, the first among them.
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

/// What becomes of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointTarget {
    /// An event for this plugin.
    Plugin(String),
    /// An intent for whoever serves its goal.
    Publish(IntentTemplate),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentTemplate {
    pub goal: String,
    pub namespace: String,
    pub attempts_max: u32,
    /// The header by which a sender says that it sends something again.
    pub delivery_header: String,
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

/// A value that is never shown by accident, and never compared in a way that tells how much of it was right.
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
