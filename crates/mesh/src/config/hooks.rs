//! `hooks.toml`: which scripts run, and what they may do. Without the file no hook runs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::DaemonConfigError;
use crate::limits::HOOK_OUTPUT_BYTES_MAX;
use crate::role::HookScope;

/// The sections of the file: the name of a script without `.sh`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct HooksFile(pub BTreeMap<String, HookSettings>);

/// The settings of one hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the switches of the file, which are independent"
)]
pub struct HookSettings {
    pub enabled: bool,
    /// `hooks.default_timeout_s` of the daemon's settings if it is not set.
    pub timeout_s: Option<u64>,
    pub output_size_limit: usize,
    /// Paths that are removed from the event before the hook reads it.
    pub redact_payload: Vec<String>,
    pub allow_reply: bool,
    pub capability_token_scope: Vec<String>,
    pub network_policy: NetworkPolicy,
    pub network_allowlist: Vec<String>,
    /// `readonly` if it is not set; then a system that cannot enforce it is not reported.
    pub fs_policy: Option<FsPolicy>,
    pub killpg_on_timeout: bool,
    pub audit: bool,
    pub sandbox: Option<HookSandbox>,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout_s: None,
            output_size_limit: HOOK_OUTPUT_BYTES_MAX,
            redact_payload: Vec::new(),
            allow_reply: false,
            capability_token_scope: Vec::new(),
            network_policy: NetworkPolicy::Deny,
            network_allowlist: Vec::new(),
            fs_policy: None,
            killpg_on_timeout: true,
            audit: true,
            sandbox: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPolicy {
    Deny,
    Allow,
    Allowlist,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsPolicy {
    Readonly,
    Rw,
    Sandbox,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookSandbox {
    /// Linux.
    Bubblewrap,
    /// macOS.
    SandboxExec,
}

impl HooksFile {
    pub fn parse(text: &str) -> Result<Self, DaemonConfigError> {
        let file: Self =
            toml::from_str(text).map_err(|error| DaemonConfigError::Syntax(error.to_string()))?;
        for (name, hook) in &file.0 {
            if !is_hook(name) {
                let message = format!("there is no hook named {name}");
                return Err(DaemonConfigError::Syntax(message));
            }
            hook.check()?;
        }
        Ok(file)
    }

    /// The hook of that name, if it runs.
    pub fn enabled(&self, name: &str) -> Option<&HookSettings> {
        self.0.get(name).filter(|hook| hook.enabled)
    }
}

impl HookSettings {
    fn check(&self) -> Result<(), DaemonConfigError> {
        let refuse = |key, rule| Err(DaemonConfigError::Value { key, rule });
        if self.timeout_s == Some(0) {
            return refuse("timeout_s", "must be at least 1");
        }
        // `<sender_pubkey>` is replaced by the sender of the event, so it is allowed here.
        let is_known = |scope: &String| {
            scope == "dm:send:<sender_pubkey>" || HookScope::parse(scope).is_some()
        };
        if !self.capability_token_scope.iter().all(is_known) {
            return refuse(
                "capability_token_scope",
                "must be reply:event, dm:send:<sender_pubkey> or topic:NAME:post",
            );
        }
        Ok(())
    }
}

fn is_hook(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "on-message",
        "on-dm",
        "on-mention",
        "on-file-share",
        "on-disconnect",
        "on-reconnect",
        "on-startup",
        "pre-send",
    ];
    let is_topic = name
        .strip_prefix("on-topic-")
        // The name is that of a file, so a slash in a topic is written `%2F`.
        .is_some_and(|topic| !topic.is_empty() && !topic.contains('/'));
    NAMES.contains(&name) || is_topic
}
