//! Create, list and revoke API keys. All commands need the admin token.

mod create;
mod list;
mod revoke;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum KeySubcommand {
    /// Create a key for an owner
    Create(Box<create::Args>),
    /// List keys, without their text
    List(Box<list::Args>),
    /// Disable a key at once
    Revoke(Box<revoke::Args>),
}

impl KeySubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
        }
    }
}
