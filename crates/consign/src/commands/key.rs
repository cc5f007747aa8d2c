//! Make, list and revoke API keys. All of it needs the admin token.

mod create;
mod list;
mod revoke;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Make a key for somebody
    Create(Box<create::Args>),
    /// List keys, never the keys themselves
    List(Box<list::Args>),
    /// Disable a key at once
    Revoke(Box<revoke::Args>),
}

impl Action {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
        }
    }
}
