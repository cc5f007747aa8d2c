//! The binary under the name `claudemesh`: the commands of a mesh's members.
//!
//! A link of that name is enough. Exit codes are those of the same commands of `consign`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::{daemon_runtime, single_thread};
use crate::commands::daemon::{DaemonArgs, lines};
use crate::commands::mesh::grant::{MemberGrantArgs, MemberGrantsArgs};
use crate::commands::mesh::{join, send};
use crate::failure::{self, Exit};
use crate::link::AdminArgs;
use crate::mesh_member::home::{MemberHome, host_environment};
use crate::{out, usage};

const NAME: &str = "claudemesh";

/// Sends and receives messages between hosts
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Claudemesh {
    #[command(subcommand)]
    noun: ClaudemeshCommand,
}

#[derive(Debug, Subcommand)]
enum ClaudemeshCommand {
    /// Become a member of a mesh, with an invite
    Join(Box<join::Args>),
    /// Send a message through the daemon, or without one if none runs
    Send(Box<send::Args>),
    /// Set what a member may do to you: send direct messages, reach you in groups
    Grant(Box<MemberGrantArgs>),
    /// List what members may do to you, where it is not the default
    Grants(Box<MemberGrantsArgs>),
    /// Run the daemon of a mesh, and talk to it
    Daemon(Box<DaemonArgs>),
    /// Change the members of a mesh, as the operator of its broker
    #[command(subcommand)]
    Member(MemberSubcommand),
    /// Show how to start the daemon with this machine
    Install,
}

#[derive(Debug, Subcommand)]
enum MemberSubcommand {
    /// End a membership for good, and close its connections
    Revoke(Box<RevokeMemberArgs>),
}

#[derive(Debug, clap::Args)]
struct RevokeMemberArgs {
    /// Key of the member, 64 hex digits
    pubkey: String,

    /// The mesh, by its slug; without it the only one that is joined
    #[arg(long, value_name = "SLUG")]
    mesh: Option<String>,

    /// Print JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminArgs,
}

/// Whether the binary was started under this name.
pub(crate) fn is_called() -> bool {
    let called = std::env::args_os().next();
    called.is_some_and(|called| {
        Path::new(&called)
            .file_name()
            .is_some_and(|name| name == NAME)
    })
}

pub(crate) fn run() -> ExitCode {
    let ended = match Claudemesh::try_parse() {
        Ok(claudemesh) => claudemesh.run(),
        Err(error) => usage::report(&error, false),
    };
    ended.unwrap_or_else(|error| failure::report(&error)).into()
}

impl Claudemesh {
    fn run(self) -> anyhow::Result<Exit> {
        match self.noun {
            ClaudemeshCommand::Join(args) => single_thread()?.block_on(args.run()),
            ClaudemeshCommand::Send(args) => single_thread()?.block_on(Box::pin(args.run())),
            ClaudemeshCommand::Grant(args) => single_thread()?.block_on(Box::pin(args.run())),
            ClaudemeshCommand::Grants(args) => single_thread()?.block_on(Box::pin(args.run())),
            ClaudemeshCommand::Daemon(args) => {
                daemon_runtime(&args)?.block_on(Box::pin(args.run()))
            }
            ClaudemeshCommand::Member(MemberSubcommand::Revoke(args)) => {
                single_thread()?.block_on(args.run())
            }
            ClaudemeshCommand::Install => install(),
        }
    }
}

impl RevokeMemberArgs {
    async fn run(self) -> anyhow::Result<Exit> {
        let slug = MemberHome::from_environment()?.slug(self.mesh.as_deref())?;
        let client = self.admin.client()?;
        let revoked = client
            .mesh_revoke_member(slug.as_str(), &self.pubkey)
            .await?;
        if self.json {
            out::json(&revoked)?;
        } else {
            out::data(&lines(&revoked))?;
        }
        Ok(Exit::Done)
    }
}

/// One line for each joined mesh. Nothing is installed without its own command.
fn install() -> anyhow::Result<Exit> {
    let slugs = MemberHome::from_environment()?.slugs()?;
    if slugs.is_empty() {
        out::data("no mesh is joined; join one with: claudemesh join LINK --name NAME")?;
    } else if host_environment(false).is_ci {
        out::data("in CI no service is installed; start with: claudemesh daemon up --ephemeral")?;
    }
    for slug in slugs {
        out::data(&format!(
            "to start the daemon of {slug} with your session: claudemesh daemon install-service --mesh {slug}"
        ))?;
    }
    Ok(Exit::Done)
}
