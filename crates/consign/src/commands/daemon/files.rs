//! Commands that change the files of a daemon: `accept-host`, `remint`, `archive-cleanup`, `recover`, `reset`, `hooks list`.

use consign_mesh::config::{DaemonConfig, HooksFile};
use consign_mesh::daemon::exclusive::{NotStopped, StoppedDaemon};
use consign_mesh::daemon::host::MachineRoot;
use consign_mesh::daemon::host_check::{HostCheck, accept_host};
use consign_mesh::daemon::key_archive::{KeyArchiveFile, cleanup_answer};
use consign_mesh::daemon::log::DaemonLog;
use consign_mesh::daemon::recover::{RecoverWay, examine, recover};
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::path;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{DaemonSelector, columns, lines};
use crate::confirm::confirm;
use crate::data_dir::read_note;
use crate::failure::{Exit, Failure};
use crate::lock;
use crate::mesh_member::home::MemberHome;

#[derive(Debug, clap::Args)]
pub(super) struct RecoverArgs {
    /// read-only-inbox, rebuild or fresh; without it the databases are checked only
    #[arg(long, value_name = "WAY", value_parser = way)]
    way: Option<RecoverWay>,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DaemonResetArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// The daemon must be stopped; the value keeps it so.
pub(super) fn stopped(home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<StoppedDaemon> {
    StoppedDaemon::lock(&home.daemon_directory(slug)).map_err(|error| match error {
        NotStopped::Running(_) => Failure::new(Exit::Refused, error.to_string()).into(),
        NotStopped::Io(error) => error.into(),
    })
}

/// The settings of a daemon; a missing file has the defaults.
pub(super) fn settings(home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<DaemonConfig> {
    let path = home.daemon_directory(slug).join("config.toml");
    let text = read_note(&path)?.unwrap_or_default();
    DaemonConfig::parse(&text)
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())).into())
}

/// Records this machine as the one that the keys belong to.
pub(super) fn accept(home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<Value> {
    let daemon = stopped(home, slug)?;
    let settings = settings(home, slug)?;
    let check = HostCheck {
        directory: daemon.directory(),
        root: &MachineRoot::default(),
        id_override: settings.host_fingerprint.id_override.as_deref(),
        policy: settings.clone.policy,
    };
    let host = accept_host(&check, &DaemonLog::disabled(slug.as_str()))?;
    Ok(json!({"accepted": true, "mesh": slug, "fingerprint": host.fingerprint()}))
}

pub(super) fn accept_host_command(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let (home, slug) = target.place()?;
    let answer = accept(&home, &slug)?;
    target.print(&answer, lines)
}

/// A running daemon cleans up its own archive; otherwise the file is cleaned here.
pub(super) async fn archive_cleanup(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let (home, slug) = target.place()?;
    let directory = home.daemon_directory(&slug);
    let answer = if lock::holder(&directory.join("pid")).is_some() {
        target
            .link()?
            .post(path::ARCHIVE_CLEANUP, &json!({}))
            .await?
    } else {
        let daemon = stopped(&home, &slug)?;
        let keys_max = settings(&home, &slug)?.crypto.max_archived_keys;
        let log = DaemonLog::disabled(slug.as_str());
        let mut archive = KeyArchiveFile::open(daemon.directory(), keys_max, &log)?;
        let removed = archive.clean_up(Timestamp::now())?;
        cleanup_answer(removed, &archive)
    };
    target.print(&answer, lines)
}

impl RecoverArgs {
    pub(super) fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let daemon = stopped(&home, &slug)?;
        let report = examine(&daemon);
        let Some(way) = self.way else {
            let answer = serde_json::to_value(&report)?;
            target.print(&answer, |answer| {
                format!(
                    "{}go on with: consign daemon recover --way WAY",
                    lines(answer)
                )
            })?;
            return Ok(if report.is_damaged() {
                Exit::Failed
            } else {
                Exit::Done
            });
        };
        confirm(
            "Set both databases aside? Messages that wait in the outbox are not sent.",
            self.yes,
        )?;
        let answer = serde_json::to_value(recover(&daemon, way)?)?;
        target.print(&answer, lines)
    }
}

impl DaemonResetArgs {
    pub(super) fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let daemon = stopped(&home, &slug)?;
        let directory = daemon.directory().display().to_string();
        confirm(
            &format!("Remove {directory} with its keys and messages?"),
            self.yes,
        )?;
        daemon.wipe()?;
        target.print(
            &json!({"reset": true, "mesh": slug, "directory": directory}),
            lines,
        )
    }
}

/// The hooks that are configured, and whether their scripts exist.
pub(super) fn list_hooks(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let (home, slug) = target.place()?;
    let folder = home.daemon_directory(&slug).join("hooks");
    let path = folder.join("hooks.toml");
    let text = read_note(&path)?.unwrap_or_default();
    let file = HooksFile::parse(&text)
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let hook = |name: &String| {
        json!({
            "hook": name,
            "enabled": file.enabled(name).is_some(),
            "script": folder.join(format!("{name}.sh")).is_file(),
        })
    };
    let hooks: Vec<Value> = file.0.keys().map(hook).collect();
    target.print(&json!({"hooks": hooks}), |answer| {
        columns(
            answer,
            "hooks",
            &["HOOK", "ENABLED", "SCRIPT"],
            &["hook", "enabled", "script"],
        )
    })
}

fn way(word: &str) -> Result<RecoverWay, String> {
    RecoverWay::parse(word).ok_or_else(|| "expected read-only-inbox, rebuild or fresh".to_owned())
}
