//! A first configuration with one working plugin.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::files;

const CONFIG: &str = "\
# The configuration of the service. Show it with `config show`, check it with `config check`, and seal it with `config lock`.
service:
  name: ductile

# The directories of plugins, relative to this file.
plugin_roots:
  - plugins

plugins:
  hello:
    config:
      greeting: hello
    schedules:
      - every: 5m
";

const MANIFEST: &str = "\
manifest_spec: ductile.plugin
manifest_version: 1
name: hello
version: 0.1.0
protocol: 2
entrypoint: run.sh
description: Says hello
commands:
  poll:
    type: read
    description: Answers with a greeting
config_keys:
  optional: [greeting]
";

const PROGRAM: &str = r#"#!/bin/sh
# Reads one JSON request from standard input and writes one JSON response to standard output.
cat > /dev/null
echo '{"status": "ok", "result": "hello"}'
"#;

/// Writes a configuration into `dir` and returns its path. An existing one is kept unless `force` is set; then it is saved as
/// `.bak`.
pub fn init(dir: &Path, force: bool) -> io::Result<PathBuf> {
    let config = dir.join("config.yaml");
    if config.exists() && !force {
        let message = format!("{} exists already", config.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    let plugin = dir.join("plugins/hello");
    files::make_dir(dir)?;
    files::make_dir(&plugin)?;
    files::write_with_backup(&config, CONFIG.as_bytes())?;
    files::write(&plugin.join("manifest.yaml"), MANIFEST.as_bytes())?;
    let program = plugin.join("run.sh");
    files::write(&program, PROGRAM.as_bytes())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    Ok(config)
}
