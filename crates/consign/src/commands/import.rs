//! Import data from another program.

mod intent_bus;
mod ledger;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum ImportSubcommand {
    /// Import the database of an Intent Bus server
    IntentBus(Box<intent_bus::Args>),
}

impl ImportSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::IntentBus(args) => args.run().await,
        }
    }
}
