//! Import data from another program.

mod beam;
mod intent_bus;
mod ledger;

use clap::Subcommand;
use consign_engine::{Error, StoreError};

use crate::failure::{Exit, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum ImportSubcommand {
    /// Import the database of an Intent Bus server
    IntentBus(Box<intent_bus::Args>),
    /// Import the database of a Beam directory or message bus
    Beam(Box<beam::Args>),
}

impl ImportSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::IntentBus(args) => args.run().await,
            Self::Beam(args) => Box::pin(args.run()).await,
        }
    }
}

/// Data that was imported before stays, whatever the storage reports about its last commit.
fn stopped(error: Error, dry_run: bool) -> anyhow::Error {
    if matches!(error, Error::Store(StoreError::Open { .. })) {
        return error.into();
    }
    let why = if let Error::Store(
        StoreError::Unavailable(why) | StoreError::DiskFull(why) | StoreError::Corrupt(why),
    ) = error
    {
        why
    } else {
        error.to_string()
    };
    let failure = Failure::failed(format!("the import stopped before its end: {why}"));
    if dry_run {
        return failure
            .hint("this was a dry run; nothing was changed")
            .into();
    }
    failure
        .hint("data imported so far stays; run the same command again, it imports nothing twice")
        .into()
}
