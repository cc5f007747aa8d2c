//! Where a user's meshes and daemons are: `~/.claudemesh`, unless variables name other directories.
//!
//! Invariant: only this module reads the variables of the mesh. The directory of a daemon does not follow
//! `CLAUDEMESH_CONFIG_DIR`, because sessions of one user with several configurations share its daemons.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context as _;
use consign_mesh::close::DaemonExit;
use consign_mesh::joined::JoinedMeshes;

use crate::data_dir;
use crate::failure::{Exit, Failure};

/// The version of `config.json` that is written.
const CONFIG_VERSION: u32 = 1;

/// The files of one user.
#[derive(Debug, Clone)]
pub(crate) struct MemberHome {
    config: PathBuf,
}

impl MemberHome {
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        let variable = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let Some(home) = variable("HOME") else {
            return Err(Failure::usage("the variable HOME is not set").into());
        };
        let config = variable("CLAUDEMESH_CONFIG_DIR").unwrap_or_else(|| home.join(".claudemesh"));
        Ok(Self { config })
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.json")
    }

    /// The joined meshes; none if the file does not exist.
    pub(crate) fn joined(&self) -> anyhow::Result<JoinedMeshes> {
        let path = self.config_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(JoinedMeshes {
                    version: CONFIG_VERSION,
                    meshes: Vec::new(),
                    rest: serde_json::Map::new(),
                });
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        JoinedMeshes::parse(&text).map_err(|error| {
            let message = format!("{} cannot be used: {error}", path.display());
            Failure::new(Exit::Daemon(DaemonExit::BadConfig.status()), message).into()
        })
    }

    /// Makes the folder of `config.json`, private, if there is none.
    pub(crate) fn create_config_folder(&self) -> anyhow::Result<PathBuf> {
        data_dir::create_private(&self.config)?;
        Ok(self.config.clone())
    }

    /// Replaces `config.json` in one step, readable by its owner alone. The folder exists.
    pub(crate) fn write_joined(&self, joined: &JoinedMeshes) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(joined)?;
        text.push('\n');
        data_dir::write_private(&self.config_file(), text.as_bytes())
    }
}

/// The broker that `CLAUDEMESH_BROKER_URL` names in place of the one of an invite or of `config.json`.
pub(crate) fn broker_override() -> Option<String> {
    std::env::var("CLAUDEMESH_BROKER_URL")
        .ok()
        .filter(|url| !url.is_empty())
}
