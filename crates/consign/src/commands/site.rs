//! The site of agent transactions: the keys that sign its receipts.

mod announce;
mod revoke;
mod rotate;
mod show;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum SiteSubcommand {
    /// Show and change the keys that sign receipts
    #[command(subcommand)]
    Key(KeyAction),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Show the public keys; save them to verify receipts later
    Show(Box<show::Args>),
    /// Announce the next key before it signs, so that verifiers can pin it in time
    Announce(Box<announce::Args>),
    /// Sign with a new key from now on; earlier signatures stay valid
    Rotate(Box<rotate::Args>),
    /// Invalidate all signatures of a replaced key, because it was compromised
    Revoke(Box<revoke::Args>),
}

impl SiteSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Key(KeyAction::Show(args)) => args.run().await,
            Self::Key(KeyAction::Announce(args)) => args.run().await,
            Self::Key(KeyAction::Rotate(args)) => args.run().await,
            Self::Key(KeyAction::Revoke(args)) => args.run().await,
        }
    }
}
