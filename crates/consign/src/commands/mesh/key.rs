//! API keys of a mesh: a program that has one acts as one member.

mod create;
mod list;
mod revoke;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum MeshKeySubcommand {
    /// Create a key for a member
    Create(Box<create::Args>),
    /// List the keys of a mesh, without their text
    List(Box<list::Args>),
    /// Disable a key at once
    Revoke(Box<revoke::Args>),
}

impl MeshKeySubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
        }
    }
}
