//! Plugins on disk, and runs with short timeouts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_automation::config::{self, Config};
use consign_automation::plugin::environment::PluginVariables;
use consign_automation::plugin::outcome::{PluginFailure, PluginOutcome, classify};
use consign_automation::plugin::run::{ProcessEnd, ProcessSpec, RunLimits, run};
use tempfile::TempDir;

pub(crate) const OK: &str = r#"echo '{"status":"ok","result":"done"}'"#;

/// Temporary directories that are removed on drop.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        consign_testkit::plants::from_environment();
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    /// Free of links, as discovery reports paths.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        chmod(&path, mode);
        path
    }

    /// A plugin that passes every check.
    pub(crate) fn plugin(&self, directory: &str, name: &str) -> PathBuf {
        self.file(&format!("{directory}/run.sh"), "#!/bin/sh\n", 0o755);
        self.manifest(directory, &manifest(name))
    }

    pub(crate) fn manifest(&self, directory: &str, text: &str) -> PathBuf {
        self.file(&format!("{directory}/manifest.yaml"), text, 0o644)
    }

    pub(crate) fn bash(&self, body: &str) -> ProcessSpec {
        self.job(&format!("#!/usr/bin/env bash\n{body}\n"))
    }

    pub(crate) fn python(&self, body: &str) -> ProcessSpec {
        let script = format!("#!/usr/bin/env python3\nimport json, os, sys, time\n{body}\n");
        self.job(&script)
    }

    pub(crate) fn job(&self, script: &str) -> ProcessSpec {
        ProcessSpec {
            entrypoint: self.file("plugin/run", script, 0o755),
            launcher: None,
            environment: environment(),
            request: b"{}\n".to_vec(),
            timeout: Duration::from_secs(15),
            limits: RunLimits {
                grace: Duration::from_millis(400),
                ..RunLimits::default()
            },
        }
    }
}

pub(crate) fn manifest(name: &str) -> String {
    format!(
        "manifest_spec: ductile.plugin\nmanifest_version: 1\nname: {name}\nversion: 1.10\nprotocol: 2\n\
         entrypoint: run.sh\ncommands:\n  poll: {{type: read}}\n"
    )
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn environment() -> PluginVariables {
    let path = OsString::from("/usr/bin:/bin:/usr/local/bin");
    PluginVariables::from([("PATH".into(), path)])
}

/// The configuration in `config.yaml` of a world, or all its problems.
pub(crate) fn configured(world: &World, text: &str) -> Result<Config, String> {
    let path = world.file("config.yaml", text, 0o600);
    let environment = config::Environment {
        variables: BTreeMap::new(),
        home: None,
        system_dir: world.path("etc"),
        processors: 2,
    };
    let loaded = config::load(&path, &environment, config::SealCheck::No);
    let problems = loaded.problems.iter().map(ToString::to_string);
    let problems: Vec<String> = problems.collect();
    loaded.config.ok_or_else(|| problems.join("\n"))
}

/// Runs to the end without cancellation.
pub(crate) async fn finish(job: ProcessSpec) -> ProcessEnd {
    run(job, |_| (), std::future::pending()).await
}

pub(crate) fn failure(ended: &ProcessEnd) -> PluginFailure {
    let PluginOutcome::Failed(failure) = classify(ended) else {
        panic!("{ended:?}");
    };
    failure
}

/// Whether a process is alive; a zombie is not.
pub(crate) fn is_alive(id: &str) -> bool {
    let id = id.trim();
    assert!(id.parse::<u32>().is_ok(), "`{id}` is no process");
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

/// Waits until a killed process is gone.
pub(crate) async fn is_soon_dead(id: &str) -> bool {
    for _ in 0..100 {
        if !is_alive(id) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}
