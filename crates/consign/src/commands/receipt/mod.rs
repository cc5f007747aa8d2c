//! Check receipts.

mod verify;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Check that a receipt is genuine and unaltered
    Verify(Box<verify::Args>),
}

impl Action {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Verify(args) => args.run().await,
        }
    }
}
