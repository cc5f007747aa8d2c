//! `consign daemon install-service` and `consign daemon uninstall-service`

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use consign_mesh::daemon::fleet;
use consign_mesh::daemon::service_unit::{
    ServiceFile, ServiceManager, ServiceOptions, ServiceScope, check_environment,
};
use serde_json::json;

use super::files::settings;
use super::{DaemonSelector, lines};
use crate::failure::{Exit, Failure};
use crate::mesh_member::home::host_environment;

#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol and independent of the others"
)]
pub(super) struct DaemonServiceArgs {
    /// Start with the session of this user; the default
    #[arg(long, conflicts_with = "system")]
    user: bool,

    /// Start with the machine; needs root
    #[arg(long)]
    system: bool,

    /// Also in CI, where services are refused
    #[arg(long)]
    allow_ci_persistent: bool,

    /// Write the file, and do not start the service
    #[arg(long)]
    no_start: bool,
}

impl DaemonServiceArgs {
    pub(super) fn install(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        check_environment(&host_environment(false), self.allow_ci_persistent)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let file = self.file(target)?;
        let folder = file.path.parent().context("the unit has a folder")?;
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&file.path, &file.text))
            .with_context(|| format!("cannot write {}", file.path.display()))?;
        if !self.no_start {
            run_all(&file.start)?;
        }
        let answer = json!({"installed": true, "path": file.path, "started": !self.no_start});
        target.print(&answer, lines)
    }

    pub(super) fn uninstall(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let file = self.file(target)?;
        if !file.path.exists() {
            let message = format!("no service is installed at {}", file.path.display());
            return Err(Failure::new(Exit::Nothing, message).into());
        }
        if !self.no_start {
            run_all(&file.stop)?;
        }
        std::fs::remove_file(&file.path)?;
        target.print(&json!({"uninstalled": true, "path": file.path}), lines)
    }

    fn file(&self, target: &DaemonSelector) -> anyhow::Result<ServiceFile> {
        let (home, slug) = target.place()?;
        home.membership(&slug)?;
        let scope = if self.system {
            ServiceScope::System
        } else {
            ServiceScope::User
        };
        let fleet = settings(&home, &slug)?.fleet;
        let share = fleet::admit(
            &fleet,
            0,
            home.slugs()?.len().clamp(1, fleet.max_daemons.max(1)),
        )
        .map_err(|error| Failure::failed(error.to_string()))?;
        let user = std::env::var("SUDO_USER")
            .or_else(|_| std::env::var("USER"))
            .ok();
        let program: PathBuf = std::env::current_exe()?;
        let memory_default = consign_mesh::daemon::service_unit::MEMORY_MAX_DEFAULT;
        let options = ServiceOptions {
            mesh: &slug,
            scope,
            program: &program,
            home: home.user_folder(),
            user: user.as_deref(),
            memory_max: consign_mesh::config::ByteSize(share.memory_bytes.min(memory_default.0)),
        };
        let file = options.file(ServiceManager::of_system());
        file.map_err(|error| Failure::usage(error.to_string()).into())
    }
}

fn run_all(commands: &[Vec<String>]) -> anyhow::Result<()> {
    for words in commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        let shown = words.join(" ");
        let status = Command::new(program).args(arguments).status();
        let status = status.with_context(|| format!("cannot run {shown}"))?;
        if !status.success() {
            return Err(Failure::failed(format!("{shown} failed with {status}"))
                .hint("the file is written; start the service by hand, or use --no-start")
                .into());
        }
    }
    Ok(())
}
