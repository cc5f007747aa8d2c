//! A program: everything that the runtime executes, compiled from one configuration tree.
//!
//! A [`Program`] is immutable: a reload creates another one, and running jobs keep theirs. It exists only if no problem is an
//! error. It runs nothing and stores nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::breaker;
use crate::config::Config;
use crate::config::model::{CircuitBreaker, RetryPolicy, ServedGoal, Timeouts};
use crate::pipeline::{Pipeline, Router};
use crate::plugin::command::PluginCommand;
use crate::plugin::confine::{Confinement, GuardedPaths};
use crate::plugin::environment::PluginVariables;
use crate::plugin::manifest::PluginManifest;
use crate::schedule::ScheduleEntry;

mod fingerprint;
mod load;
mod missing;
mod names;
#[cfg(test)]
mod tests;

pub use load::{LoadedProgram, consequences, load, lock};
pub(crate) use names::{UNSERVED_WEBHOOKS, WEBHOOKS_LISTEN, unserved_webhook};

#[derive(Debug)]
pub struct Program {
    config: Config,
    /// The plugins that can be run.
    plugins: BTreeMap<String, Plugin>,
    /// By name, with the reason.
    left_out: BTreeMap<String, String>,
    router: Router,
    environment: PluginVariables,
}

/// A plugin or an alias of one, with everything that is needed to run it.
#[derive(Clone)]
pub struct Plugin {
    pub name: String,
    /// For an alias, the plugin whose program it is.
    pub base: Option<String>,
    pub manifest: Arc<PluginManifest>,
    pub directory: PathBuf,
    pub entrypoint: PathBuf,
    /// Sent to the plugin unchanged.
    pub config: Map<String, Value>,
    /// In the order of the file.
    pub schedules: Vec<ScheduleEntry>,
    /// The maximum number of concurrent processes.
    pub parallelism: usize,
    pub max_outstanding_polls: usize,
    pub timeouts: Timeouts,
    pub retry: RetryPolicy,
    pub breaker: breaker::BreakerPolicy,
    pub notify_on_complete: bool,
    /// The goals of the Intent Protocol that it serves.
    pub serves: Vec<ServedGoal>,
    pub confinement: Confinement,
}

impl Program {
    /// The program for one-shot mode: a failed job is not retried, because no process would be there to do it.
    #[must_use]
    pub fn for_one_shot(mut self) -> Self {
        for plugin in self.plugins.values_mut() {
            plugin.retry.max_attempts = 1;
        }
        self
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    /// By name.
    pub fn pipelines(&self) -> &[Pipeline] {
        self.router.pipelines()
    }

    /// A plugin that can be run. Disabled and skipped plugins are not included; see [`Program::is_known`].
    pub fn plugin(&self, name: &str) -> Option<&Plugin> {
        self.plugins.get(name)
    }

    /// All plugins that can be run, by name.
    pub fn plugins(&self) -> impl Iterator<Item = &Plugin> {
        self.plugins.values()
    }

    /// Plugins that exist but cannot be run, with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        let left_out = self.left_out.iter();
        left_out.map(|(name, why)| (name.as_str(), why.as_str()))
    }

    /// Whether the name is known, even if the plugin cannot be run.
    pub fn is_known(&self, name: &str) -> bool {
        self.plugins.contains_key(name) || self.config.plugins.contains_key(name)
    }

    pub fn command(&self, plugin: &str, command: &str) -> Option<&PluginCommand> {
        self.plugin(plugin)?.manifest.command(command)
    }

    pub fn parallelism(&self, plugin: &str) -> Option<usize> {
        Some(self.plugin(plugin)?.parallelism)
    }

    /// The guarded paths for the sandbox of this plugin: those from the configuration and those in `known`.
    pub(crate) fn guarded(&self, known: &GuardedPaths, plugin: &str) -> GuardedPaths {
        let mut guarded = load::guarded(&self.config);
        guarded.hidden.extend(known.hidden.iter().cloned());
        guarded.kept.extend(known.kept.iter().cloned());
        // Escaped, so that any name is a single path segment and unique.
        let own: String = plugin.bytes().map(directory_letter).collect();
        guarded.spare = known.spare.as_ref().map(|spare| spare.join(own));
        guarded
    }

    /// The environment variables of plugin processes.
    pub fn environment(&self) -> &PluginVariables {
        &self.environment
    }
}

fn directory_letter(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        other => format!("%{other:02x}"),
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration may contain secrets.
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("entrypoint", &self.entrypoint)
            .finish_non_exhaustive()
    }
}

impl From<CircuitBreaker> for breaker::BreakerPolicy {
    fn from(configured: CircuitBreaker) -> Self {
        Self {
            threshold: u32::try_from(configured.threshold).unwrap_or(u32::MAX),
            reset_after: configured.reset_after,
        }
    }
}
