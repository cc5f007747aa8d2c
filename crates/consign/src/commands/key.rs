//! Create, list, change, rotate and revoke API keys, and grant them namespaces of other protocols. All commands need the
//! admin token.

mod change;
mod create;
mod grant;
mod granted_namespace;
mod grants;
mod list;
mod revoke;
mod revoke_grant;
mod rotate;
mod settings;
mod show;
pub(crate) mod span;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum KeySubcommand {
    /// Create a key for an owner
    Create(Box<create::Args>),
    /// List keys, without their text
    List(Box<list::Args>),
    /// Show a key with its settings, without its text
    Show(Box<show::Args>),
    /// Change the name, scopes, namespaces, limits or end of a key
    Change(Box<change::Args>),
    /// Give a key a new secret; its id, intents, grants and settings stay
    Rotate(Box<rotate::Args>),
    /// Disable a key at once
    Revoke(Box<revoke::Args>),
    /// Let a key claim the messages to an agent, or the items of a queue of a mesh
    Grant(Box<grant::Args>),
    /// Refuse further claims that a grant allowed
    RevokeGrant(Box<revoke_grant::Args>),
    /// List which key may claim in which namespace
    Grants(Box<grants::Args>),
}

impl KeySubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Change(args) => args.run().await,
            Self::Rotate(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
            Self::Grant(args) => args.run().await,
            Self::RevokeGrant(args) => args.run().await,
            Self::Grants(args) => args.run().await,
        }
    }
}
