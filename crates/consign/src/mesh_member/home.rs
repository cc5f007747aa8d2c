//! Where a user's meshes and daemons are: `~/.claudemesh`, unless variables name other directories.
//!
//! Invariant: only this module reads the variables of the mesh. The directory of a daemon does not follow
//! `CLAUDEMESH_CONFIG_DIR`, because sessions of one user with several configurations share its daemons.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use consign_mesh::close::DaemonExit;
use consign_mesh::environment::HostEnvironment;
use consign_mesh::id::MeshSlug;
use consign_mesh::joined::{JoinedMesh, JoinedMeshes};
use zeroize::Zeroizing;

use crate::data_dir;
use crate::failure::{Exit, Failure};

/// The version of `config.json` that is written.
const CONFIG_VERSION: u32 = 1;

/// The files of one user.
#[derive(Debug, Clone)]
pub(crate) struct MemberHome {
    home: PathBuf,
    config: PathBuf,
    /// The directory of every daemon, if `CLAUDEMESH_DAEMON_DIR` is set.
    daemon: Option<PathBuf>,
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
        Ok(Self {
            home,
            config,
            daemon: variable("CLAUDEMESH_DAEMON_DIR"),
        })
    }

    pub(crate) fn user_folder(&self) -> &Path {
        &self.home
    }

    /// `~/.claudemesh`.
    pub(crate) fn mesh_folder(&self) -> PathBuf {
        self.home.join(".claudemesh")
    }

    /// The folder of `config.json`.
    pub(crate) fn config_folder(&self) -> &Path {
        &self.config
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.json")
    }

    pub(crate) fn daemon_directory(&self, slug: &MeshSlug) -> PathBuf {
        match &self.daemon {
            Some(directory) => directory.clone(),
            None => self.mesh_folder().join("daemon").join(slug.as_str()),
        }
    }

    /// The joined meshes; none if the file does not exist.
    pub(crate) fn joined(&self) -> anyhow::Result<JoinedMeshes> {
        let path = self.config_file();
        let text = match std::fs::read_to_string(&path) {
            // It has the secret keys.
            Ok(text) => Zeroizing::new(text),
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

    /// Changes `config.json` as it is now, in one step: another command may have changed it a moment ago. The file is readable
    /// by its owner alone.
    pub(crate) fn change_joined(
        &self,
        change: impl FnOnce(&mut JoinedMeshes),
    ) -> anyhow::Result<()> {
        data_dir::create_private(&self.config)?;
        let locked = File::open(&self.config).and_then(|folder| folder.lock().map(|()| folder));
        let _locked = locked.with_context(|| format!("cannot lock {}", self.config.display()))?;
        let mut joined = self.joined()?;
        change(&mut joined);
        let mut text = Zeroizing::new(serde_json::to_string_pretty(&joined)?);
        text.push('\n');
        data_dir::write_private(&self.config_file(), text.as_bytes())
    }

    /// `displayName` of `config.json`.
    pub(crate) fn display_name(&self) -> anyhow::Result<Option<String>> {
        let joined = self.joined()?;
        let name = joined.rest.get("displayName");
        Ok(name.and_then(|name| name.as_str()).map(str::to_owned))
    }

    /// The mesh that a command means: the named one, or the only one that is joined.
    pub(crate) fn slug(&self, named: Option<&str>) -> anyhow::Result<MeshSlug> {
        if let Some(named) = named {
            return MeshSlug::parse(named).map_err(|_| {
                Failure::usage(format!("{named:?} is not the slug of a mesh")).into()
            });
        }
        let joined = self.joined()?;
        match joined.meshes.as_slice() {
            [only] => MeshSlug::parse(&only.slug)
                .with_context(|| format!("a slug in {}", self.config_file().display())),
            [] => Err(no_mesh("no mesh is joined").into()),
            several => {
                let slugs: Vec<&str> = several.iter().map(|mesh| mesh.slug.as_str()).collect();
                let message = format!("several meshes are joined: {}", slugs.join(", "));
                Err(Failure::usage(message).hint("name one with --mesh").into())
            }
        }
    }

    /// The record of a joined mesh.
    pub(crate) fn membership(&self, slug: &MeshSlug) -> anyhow::Result<JoinedMesh> {
        let joined = self.joined()?;
        let found = joined.get(slug.as_str()).cloned();
        found.ok_or_else(|| no_mesh(&format!("the mesh {slug} is not joined")).into())
    }

    /// The slugs of all joined meshes.
    pub(crate) fn slugs(&self) -> anyhow::Result<Vec<MeshSlug>> {
        let joined = self.joined()?;
        let slugs = joined.meshes.iter().map(|mesh| {
            MeshSlug::parse(&mesh.slug)
                .with_context(|| format!("the slug {:?} in config.json", mesh.slug))
        });
        slugs.collect()
    }
}

/// The broker that `CLAUDEMESH_BROKER_URL` names in place of the one of an invite or of `config.json`.
pub(crate) fn broker_override() -> Option<String> {
    std::env::var("CLAUDEMESH_BROKER_URL")
        .ok()
        .filter(|url| !url.is_empty())
}

/// What decides about defaults of a daemon on this machine.
pub(crate) fn host_environment(is_container: bool) -> HostEnvironment {
    let cgroup = std::fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let mut found = HostEnvironment::detect(
        |name| std::env::var(name).ok(),
        Path::new("/.dockerenv").exists(),
        &cgroup,
    );
    found.is_contained |= is_container;
    found
}

fn no_mesh(message: &str) -> Failure {
    Failure::new(Exit::Daemon(DaemonExit::NoMesh.status()), message)
        .hint("join one with: consign mesh join LINK --name NAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_in(directory: &Path) -> MemberHome {
        MemberHome {
            home: directory.to_owned(),
            config: directory.join("config"),
            daemon: None,
        }
    }

    fn mesh(id: &str, slug: &str) -> JoinedMesh {
        JoinedMesh {
            mesh_id: id.to_owned(),
            member_id: "m".to_owned(),
            slug: slug.to_owned(),
            name: slug.to_owned(),
            pubkey: String::new(),
            secret_key: Zeroizing::default(),
            broker_url: String::new(),
            joined_at: String::new(),
            rest: serde_json::Map::new(),
        }
    }

    #[test]
    fn the_only_mesh_needs_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let home = home_in(directory.path());
        let none = home.slug(None).unwrap_err().to_string();
        assert_eq!(none, "no mesh is joined");
        home.change_joined(|joined| joined.put(mesh("1", "one")))
            .unwrap();
        assert_eq!(home.slug(None).unwrap().as_str(), "one");
        home.change_joined(|joined| joined.put(mesh("2", "two")))
            .unwrap();
        let several = home.slug(None).unwrap_err().to_string();
        assert_eq!(several, "several meshes are joined: one, two");
        assert_eq!(home.slug(Some("two")).unwrap().as_str(), "two");
        assert!(home.slug(Some("../two")).is_err());
    }

    #[test]
    fn cm_008_the_directory_of_a_daemon_can_be_named() {
        let mut home = home_in(Path::new("/home/a"));
        let slug = MeshSlug::parse("one").unwrap();
        let usual = Path::new("/home/a/.claudemesh/daemon/one");
        assert_eq!(home.daemon_directory(&slug), usual);
        home.daemon = Some(PathBuf::from("/run/mesh"));
        assert_eq!(home.daemon_directory(&slug), Path::new("/run/mesh"));
    }
}
