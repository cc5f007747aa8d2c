//! The site of agent transactions: the keys that sign its receipts.

mod announce;
mod revoke;
mod rotate;
mod show;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Show and change the keys that sign receipts
    #[command(subcommand)]
    Key(KeyAction),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Show the public keys; keep them to check receipts later
    Show(Box<show::Args>),
    /// Make the next key known before it signs, so that verifiers can pin it in time
    Announce(Box<announce::Args>),
    /// Sign with a new key from now on; what was signed stays good
    Rotate(Box<rotate::Args>),
    /// Take back what a key that was replaced has signed, because somebody else has it
    Revoke(Box<revoke::Args>),
}

impl Action {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Key(KeyAction::Show(args)) => args.run().await,
            Self::Key(KeyAction::Announce(args)) => args.run().await,
            Self::Key(KeyAction::Rotate(args)) => args.run().await,
            Self::Key(KeyAction::Revoke(args)) => args.run().await,
        }
    }
}
