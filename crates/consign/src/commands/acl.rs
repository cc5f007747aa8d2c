//! The access rules of agents.

mod allow;
mod deny;
mod list;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum AclSubcommand {
    /// Allow a sender to send an intent to an agent
    Allow(Box<allow::Args>),
    /// Remove a rule, so that the sender is refused again
    Deny(Box<deny::Args>),
    /// List the rules of an agent
    List(Box<list::Args>),
}

impl AclSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Allow(args) => args.run().await,
            Self::Deny(args) => args.run().await,
            Self::List(args) => args.run().await,
        }
    }
}
