//! The daemon: a member of a mesh that runs on its own, sends what local programs give it, and keeps what it receives.
//!
//! Invariant: a request is answered with success only when its row is on disk; what is on disk is sent until the broker has
//! accepted it, refused it for good, or it is too old. Only the binary reads the environment: [`DaemonOptions`] are values.

mod accept;
mod agreed_keys;
pub mod backup;
pub mod cold_path;
mod connection;
mod drain;
mod end;
mod event_hub;
pub mod exclusive;
pub mod fleet;
mod folder;
mod handshake;
mod hook_runs;
pub mod hooks;
pub mod host;
pub mod host_check;
pub mod identity;
mod inbound;
mod intents;
mod interrupted_rotation;
mod ipc_limits;
mod ipc_server;
pub mod key_archive;
pub mod key_rotation;
mod line;
mod local_tokens;
pub mod log;
pub mod metrics;
mod open;
mod outbox_ledger;
mod outbox_payload;
mod outbox_queue;
mod peers;
pub mod private_file;
pub mod random;
mod rebuild;
pub mod recover;
mod rename;
mod reseal;
mod retention;
mod routes;
pub mod service_unit;
mod shared;
mod shared_file;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(test)]
mod test_keys;
mod topics;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

pub use end::DaemonEnd;
pub use folder::DaemonFolder;

use crate::environment::{HostEnvironment, IdentityFlag};
use crate::id::{DisplayName, MeshSlug};
use crate::joined::JoinedMesh;

/// What the command line and the environment say.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    pub mesh: MeshSlug,
    /// `$HOME/.claudemesh`.
    pub home_folder: PathBuf,
    /// The folder of `config.json`, if it is another one.
    pub config_folder: Option<PathBuf>,
    /// The folder of the daemon itself, if it is not `daemon/SLUG` in the home folder.
    pub daemon_folder: Option<PathBuf>,
    /// A membership that is not in `config.json`, and ends with the daemon.
    pub joined: Option<JoinedMesh>,
    /// Takes the place of the broker's address in `config.json`.
    pub broker_url: Option<String>,
    pub environment: HostEnvironment,
    pub identity: IdentityFlag,
    /// The daemon ends by itself after this time.
    pub ttl: Option<Duration>,
    /// Used at the first start.
    pub display_name: Option<DisplayName>,
    /// Also use the name at a later start.
    pub rename: bool,
    /// Log to standard error as well.
    pub foreground: bool,
}

impl DaemonOptions {
    pub fn new(mesh: MeshSlug, home_folder: PathBuf) -> Self {
        Self {
            mesh,
            home_folder,
            config_folder: None,
            daemon_folder: None,
            joined: None,
            broker_url: None,
            environment: HostEnvironment::default(),
            identity: IdentityFlag::Unset,
            ttl: None,
            display_name: None,
            rename: false,
            foreground: false,
        }
    }

    /// The folder of the daemon.
    pub fn folder(&self) -> DaemonFolder {
        let named = self.daemon_folder.clone();
        let own = || self.home_folder.join("daemon").join(self.mesh.as_str());
        DaemonFolder::new(named.unwrap_or_else(own))
    }

    fn joined_meshes(&self) -> PathBuf {
        let folder = self.config_folder.as_ref().unwrap_or(&self.home_folder);
        folder.join("config.json")
    }
}

/// Runs a daemon until `shutdown` resolves, a local program ends it, or the broker does for good.
pub async fn run(options: DaemonOptions, shutdown: impl Future) -> DaemonEnd {
    match open::open(options).await {
        Ok(daemon) => daemon.run(shutdown).await,
        Err(end) => end,
    }
}
