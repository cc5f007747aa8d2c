//! Verifies the programs of plugins against the seal.
//!
//! A changed manifest or program is treated like a changed operational file: a warning, or an error in strict mode. A seal
//! without fingerprints does not cover plugins.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigProblems, ConfigSeal, Fingerprint, Severity};
use crate::plugin::registry::{PluginRegistry, RegisteredPlugin};

const MANIFEST: &str = "manifest.yaml";
const FIX: &str = "review the changes, then run `config lock`";

/// The fingerprints of all configured plugins that were found.
pub(super) fn take(config: &Config, registry: &PluginRegistry) -> io::Result<Vec<Fingerprint>> {
    let configured = registry
        .iter()
        .filter_map(|plugin| Some((plugin, config.plugins.get(&plugin.name)?)));
    let taken = configured.map(|(plugin, configured)| of(plugin, configured.enabled));
    taken.collect()
}

fn of(plugin: &RegisteredPlugin, enabled: bool) -> io::Result<Fingerprint> {
    let manifest = plugin.directory.join(MANIFEST);
    Ok(Fingerprint {
        name: plugin.name.clone(),
        enabled,
        uses: plugin.base.clone(),
        manifest_hash: hash(&manifest)?,
        manifest_resolved_path: fs::canonicalize(&manifest)?,
        manifest_path: manifest,
        entrypoint_path: plugin.directory.join(&plugin.manifest.entrypoint),
        entrypoint_hash: hash(&plugin.entrypoint)?,
        entrypoint_resolved_path: plugin.entrypoint.clone(),
    })
}

/// Compares the enabled plugins with the seal of the configuration's directory.
pub(super) fn verify(
    config: &Config,
    registry: &PluginRegistry,
    drift_fails: bool,
) -> ConfigProblems {
    let mut problems = ConfigProblems::default();
    // A missing or damaged seal was reported with the files that it should cover.
    let Ok(Some(seal)) = ConfigSeal::read(&config.dir) else {
        return problems;
    };
    let severity = if drift_fails {
        Severity::Error
    } else {
        Severity::Warning
    };
    let sealed = seal.plugin_fingerprints;
    let enabled = registry.iter().filter(|plugin| {
        let configured = config.plugins.get(&plugin.name);
        configured.is_some_and(|configured| configured.enabled)
    });
    for plugin in enabled.filter(|_| !sealed.is_empty()) {
        let name = &plugin.name;
        let Some(known) = sealed.iter().find(|known| known.name == *name) else {
            let message = format!("the plugin `{name}` is not in the seal");
            problems.push(severity, &plugin.directory.join(MANIFEST), 0, message, FIX);
            continue;
        };
        for (path, message) in differences(plugin, known) {
            problems.push(severity, &path, 0, message, FIX);
        }
    }
    problems
}

fn differences(plugin: &RegisteredPlugin, known: &Fingerprint) -> Vec<(PathBuf, String)> {
    let name = &plugin.name;
    let manifest = plugin.directory.join(MANIFEST);
    let parts = [
        (
            "manifest",
            manifest,
            &known.manifest_path,
            &known.manifest_hash,
        ),
        (
            "program",
            plugin.entrypoint.clone(),
            &known.entrypoint_resolved_path,
            &known.entrypoint_hash,
        ),
    ];
    let mut found = Vec::new();
    for (part, path, sealed_path, sealed_hash) in parts {
        let message = match hash(&path) {
            Err(error) => format!("the {part} of `{name}` cannot be read: {error}"),
            Ok(_) if path != *sealed_path => {
                let sealed = sealed_path.display();
                format!("the {part} of `{name}` was sealed as {sealed}")
            }
            Ok(hash) if !hash.eq_ignore_ascii_case(sealed_hash) => {
                format!("the {part} of `{name}` differs from its seal")
            }
            Ok(_) => continue,
        };
        found.push((path, message));
    }
    found
}

/// Streams the file, because programs may be large.
fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}
