//! Operate the broker of meshes: meshes, invites and members. All commands of operators need the admin token.

mod create;
mod dead;
mod dedupe;
pub(crate) mod grant;
mod invite;
mod invites;
pub(crate) mod join;
mod key;
mod list;
mod members;
mod messages;
mod orphan_check;
mod peers;
mod rename;
mod requeue;
mod revoke;
mod revoke_invite;
pub(crate) mod send;
mod set_grants;
mod show;
mod subscribe;
mod sweep;
mod topics;
mod unsubscribe;

use clap::Subcommand;
use serde_json::Value;

use crate::commands::OutputArgs;
use crate::commands::beam::member;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, Subcommand)]
pub(crate) enum MeshSubcommand {
    /// Become a member of a mesh, with an invite; needs no right at the broker
    Join(Box<join::Args>),
    /// Send a message through the daemon, or without one if none runs
    Send(Box<send::Args>),
    /// Set what a member may do to you: send direct messages, reach you in groups
    Grant(Box<grant::MemberGrantArgs>),
    /// List what members may do to you, where it is not the default
    Grants(Box<grant::MemberGrantsArgs>),
    /// Create a mesh
    Create(Box<create::Args>),
    /// List the meshes
    List(Box<list::Args>),
    /// Show a mesh and its settings
    Show(Box<show::Args>),
    /// Create an invite; its token is a secret
    Invite(Box<invite::Args>),
    /// List the invites of a mesh, without their tokens
    Invites(Box<invites::Args>),
    /// Refuse further members with an invite
    RevokeInvite(Box<revoke_invite::Args>),
    /// List the members of a mesh
    Members(Box<members::Args>),
    /// Change the name of a member
    Rename(Box<rename::Args>),
    /// End a membership for good, and close its connections
    Revoke(Box<revoke::Args>),
    /// Set what a member lets another member do
    SetGrants(Box<set_grants::Args>),
    /// List the topics of a mesh
    Topics(Box<topics::Args>),
    /// Let a topic fill a queue: each later post is also an item for its workers
    Subscribe(Box<subscribe::Args>),
    /// End a subscription of a queue; its items stay
    Unsubscribe(Box<unsubscribe::Args>),
    /// List the connections of a mesh
    Peers(Box<peers::Args>),
    /// List the latest messages of a mesh, without bodies
    Messages(Box<messages::Args>),
    /// List the items of queues that no worker finished, without bodies
    Dead(Box<dead::Args>),
    /// Offer a dead item to the workers of its queue again
    Requeue(Box<requeue::Args>),
    /// Count members that used an id for different messages
    Dedupe(Box<dedupe::Args>),
    /// Create, list and revoke API keys of programs
    #[command(subcommand)]
    Key(key::MeshKeySubcommand),
    /// Remove messages and ids that are past their retention
    Sweep(Box<sweep::Args>),
    /// Look for ids of messages that do not exist
    OrphanCheck(Box<orphan_check::Args>),
}

impl MeshSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Join(args) => args.run().await,
            Self::Send(args) => args.run().await,
            Self::Grant(args) => args.run().await,
            Self::Grants(args) => args.run().await,
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Invite(args) => args.run().await,
            Self::Invites(args) => args.run().await,
            Self::RevokeInvite(args) => args.run().await,
            Self::Members(args) => args.run().await,
            Self::Rename(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
            Self::SetGrants(args) => args.run().await,
            Self::Topics(args) => args.run().await,
            Self::Subscribe(args) => args.run().await,
            Self::Unsubscribe(args) => args.run().await,
            Self::Peers(args) => args.run().await,
            Self::Messages(args) => args.run().await,
            Self::Dead(args) => args.run().await,
            Self::Requeue(args) => args.run().await,
            Self::Dedupe(args) => args.run().await,
            Self::Key(action) => action.run().await,
            Self::Sweep(args) => args.run().await,
            Self::OrphanCheck(args) => args.run().await,
        }
    }
}

/// The flags of every command of operators.
#[derive(Debug, clap::Args)]
struct OperatorArgs {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl OperatorArgs {
    /// Prints the response as JSON, or what `human` makes of it.
    fn print(
        &self,
        response: &Value,
        human: impl FnOnce(&Value) -> anyhow::Result<()>,
    ) -> anyhow::Result<Exit> {
        if self.output.json {
            out::json(response)?;
        } else {
            human(response)?;
        }
        Ok(Exit::Done)
    }
}

/// A time in milliseconds since 1970.
fn time(value: &Value, name: &str) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a time is shown to the second")]
    let seconds = value[name].as_i64().map(|ms| ms as f64 / 1_000.0);
    seconds.map_or_else(|| "-".to_owned(), render::time)
}

/// How long a mesh remembers the ids of messages.
fn dedupe(mesh: &Value) -> String {
    match member(mesh, "dedupe_days") {
        Some(days) => format!("{days} days"),
        None => "for good".to_owned(),
    }
}
