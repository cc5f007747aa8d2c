//! `consign daemon …`: the daemon of a mesh and what it stores.

mod backup;
mod detach;
mod down;
mod events;
mod files;
mod guest_rows;
mod inbox;
pub(crate) mod launch;
mod logs;
mod outbox;
mod peers;
mod ps;
mod publish;
mod remint;
mod requests;
mod restart;
mod send;
mod service;
mod status;
mod topic;
mod uninstall;
mod up;

use clap::Subcommand;
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::path;
use serde_json::Value;

use crate::failure::Exit;
use crate::mesh_member::daemon_link::DaemonLink;
use crate::mesh_member::home::MemberHome;
use crate::out;

pub(crate) use send::MessageArgs;

/// Which daemon, and how its answer is printed.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DaemonSelector {
    /// The mesh, by its slug; without it the only one that is joined
    #[arg(long, value_name = "SLUG", global = true)]
    mesh: Option<String>,

    /// Print JSON on standard output
    #[arg(long, global = true)]
    json: bool,
}

/// The noun with its target, which may stand before or after the action.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(flatten)]
    target: DaemonSelector,

    #[command(subcommand)]
    action: DaemonSubcommand,
}

#[derive(Debug, Subcommand)]
enum DaemonSubcommand {
    /// Start the daemon
    #[command(after_help = up::AFTER_HELP)]
    Up(Box<up::UpArgs>),
    /// Stop the daemon
    Down(down::DownArgs),
    /// Stop the daemon and start it again
    Restart(Box<up::UpArgs>),
    /// Show the health of the daemon
    Status,
    /// List the daemons of all joined meshes
    Ps,
    /// Send a message
    Send(send::SendArgs),
    /// Publish an intent at its server, through the outbox
    #[command(after_help = publish::AFTER_HELP)]
    Publish(Box<publish::PublishArgs>),
    /// Post to topics, and change the subscriptions
    #[command(subcommand)]
    Topic(topic::TopicSubcommand),
    /// List received messages, newest first
    Inbox(inbox::InboxArgs),
    /// List messages and intents to send, newest first, and repair them
    Outbox(outbox::OutboxArgs),
    /// List the other members of the mesh that are connected
    Peers,
    /// Change what other members see of this one
    Profile(peers::ProfileArgs),
    /// Follow the events of the daemon
    Events(events::EventsArgs),
    /// Show the metrics of the daemon in the format of Prometheus
    Metrics,
    /// Show the log of the daemon
    Logs(logs::DaemonLogsArgs),
    /// Show the version of the daemon and what it agreed on with the broker
    Version,
    /// Show which brokers, commands and clients the daemon works with
    Compat,
    /// Read config.toml and hooks.toml again; the connection to the broker stays
    Reload,
    /// Replace the token of the loopback interface; the old one is valid for 60 more seconds
    RotateToken,
    /// Replace the keys of the member; messages to the old key can be read for some days
    RotateKeypair,
    /// Remove expired keys from the archive of replaced keys
    ArchiveCleanup,
    /// Keep the keys on this machine, after the folder was moved or copied to it
    AcceptHost,
    /// Become a new member with new keys, by an invite
    Remint(remint::RemintArgs),
    /// Write keys and settings to a file that a passphrase protects
    Backup(backup::DaemonBackupArgs),
    /// Replace keys and settings by those of a backup
    Restore(backup::DaemonRestoreArgs),
    /// Check the databases, and set damaged ones aside
    Recover(files::RecoverArgs),
    /// Remove the folder of the daemon; the membership stays
    Reset(files::DaemonResetArgs),
    /// Leave the mesh for good, and remove the folder of the daemon
    Uninstall(uninstall::UninstallArgs),
    /// Start the daemon with the session or with the machine
    #[command(visible_alias = "install")]
    InstallService(service::DaemonServiceArgs),
    /// Remove the service again
    UninstallService(service::DaemonServiceArgs),
    /// Show the configured hooks
    #[command(subcommand)]
    Hooks(HooksSubcommand),
}

#[derive(Debug, Subcommand)]
enum HooksSubcommand {
    /// List the hooks of hooks.toml, and whether their scripts exist
    List,
}

impl DaemonArgs {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let target = self.target;
        match self.action {
            DaemonSubcommand::Up(args) => args.run(&target).await,
            DaemonSubcommand::Down(args) => args.run(&target).await,
            DaemonSubcommand::Restart(args) => restart::run(*args, &target).await,
            DaemonSubcommand::Status => status::run(&target).await,
            DaemonSubcommand::Ps => ps::run(&target).await,
            DaemonSubcommand::Send(args) => args.run(&target).await,
            DaemonSubcommand::Publish(args) => args.run(&target).await,
            DaemonSubcommand::Topic(action) => action.run(&target).await,
            DaemonSubcommand::Inbox(args) => args.run(&target).await,
            DaemonSubcommand::Outbox(args) => args.run(&target).await,
            DaemonSubcommand::Peers => peers::list(&target).await,
            DaemonSubcommand::Profile(args) => args.run(&target).await,
            DaemonSubcommand::Events(args) => args.run(&target).await,
            DaemonSubcommand::Metrics => requests::metrics(&target).await,
            DaemonSubcommand::Logs(args) => args.run(&target).await,
            DaemonSubcommand::Version => requests::show(&target, path::VERSION).await,
            DaemonSubcommand::Compat => requests::show(&target, path::COMPAT).await,
            DaemonSubcommand::Reload => requests::order(&target, path::RELOAD).await,
            DaemonSubcommand::RotateToken => requests::order(&target, path::TOKEN_ROTATE).await,
            DaemonSubcommand::RotateKeypair => requests::order(&target, path::KEYPAIR_ROTATE).await,
            DaemonSubcommand::ArchiveCleanup => files::archive_cleanup(&target).await,
            DaemonSubcommand::AcceptHost => files::accept_host_command(&target),
            DaemonSubcommand::Remint(args) => args.run(&target).await,
            DaemonSubcommand::Backup(args) => args.run(&target),
            DaemonSubcommand::Restore(args) => args.run(&target),
            DaemonSubcommand::Recover(args) => args.run(&target),
            DaemonSubcommand::Reset(args) => args.run(&target),
            DaemonSubcommand::Uninstall(args) => args.run(&target).await,
            DaemonSubcommand::InstallService(args) => args.install(&target),
            DaemonSubcommand::UninstallService(args) => args.uninstall(&target),
            DaemonSubcommand::Hooks(HooksSubcommand::List) => files::list_hooks(&target),
        }
    }

    /// Whether the command runs the daemon itself, which needs a runtime of its own.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(&self.action, DaemonSubcommand::Up(args) if args.is_foreground())
    }
}

impl DaemonSelector {
    /// The mesh and the files of its user.
    fn place(&self) -> anyhow::Result<(MemberHome, MeshSlug)> {
        let home = MemberHome::from_environment()?;
        let slug = home.slug(self.mesh.as_deref())?;
        Ok((home, slug))
    }

    fn link(&self) -> anyhow::Result<DaemonLink> {
        let (home, slug) = self.place()?;
        DaemonLink::new(&slug, &home.daemon_directory(&slug))
    }

    /// Prints an answer as JSON, or as the text that is made of it.
    fn print(&self, answer: &Value, text: impl FnOnce(&Value) -> String) -> anyhow::Result<Exit> {
        if self.json {
            out::json(answer)?;
        } else {
            out::data(&text(answer))?;
        }
        Ok(Exit::Done)
    }
}

/// The text of a member of an answer; nothing for `null`.
fn member(answer: &Value, key: &str) -> Option<String> {
    match &answer[key] {
        Value::Null => None,
        Value::String(text) => Some(crate::render::safe(text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(crate::render::safe(&answer[key].to_string()))
        }
    }
}

/// The members of an answer, one line each.
pub(crate) fn lines(answer: &Value) -> String {
    let Value::Object(members) = answer else {
        return answer.to_string();
    };
    let pairs: Vec<(&str, Option<String>)> = members
        .keys()
        .map(|key| (key.as_str(), member(answer, key)))
        .collect();
    crate::render::fields(&pairs)
}

/// The items of a list as columns.
fn columns(answer: &Value, list: &str, heading: &[&str], keys: &[&str]) -> String {
    let items = answer[list].as_array().map_or(&[][..], Vec::as_slice);
    let row = |item: &Value| {
        let cells = keys.iter().map(|key| member(item, key).unwrap_or_default());
        cells.collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    crate::render::table(heading, &rows)
}
