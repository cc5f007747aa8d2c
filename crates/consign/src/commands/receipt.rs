//! Receipts: list and show those of agent transactions, and verify all kinds.

mod list;
mod show;
mod site;
mod verify;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptSubcommand {
    /// List the receipts of agent transactions
    List(Box<list::Args>),
    /// Print a receipt of an agent transaction, exactly as the site signed it
    Show(Box<show::Args>),
    /// Verify that a receipt is genuine and unaltered
    Verify(Box<verify::Args>),
}

impl ReceiptSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Verify(args) => args.run().await,
        }
    }
}
