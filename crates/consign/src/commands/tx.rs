//! Agent transactions: signed intents, executed once, with receipts.
//!
//! Invariant: every request with an effect has an idempotency key that is on disk before the first attempt, so repeating a
//! command after any failure does nothing twice.

mod agent;
mod agent_directory;
mod authorize;
mod cancel;
mod compensate;
mod create;
mod execute;
mod key;
mod list;
mod reconcile;
mod request;
mod resolve;
mod show;

use clap::Subcommand;

use crate::failure::Exit;

pub(crate) use request::{amount, now};

pub(crate) const AFTER_HELP: &str = "\
An intent names the allowed actions, the maximum amount and an expiry. It is created (create),
authorized (authorize) and executed (execute); an executed intent can be compensated (compensate),
one that was not executed can be withdrawn (cancel).

After any failure, run the same command again: authorize, execute and compensate store their
idempotency keys in the directory of the agent (--state), so nothing happens twice.";

#[derive(Debug, Subcommand)]
pub(crate) enum TxSubcommand {
    /// Create an intent and sign it
    Create(Box<create::Args>),
    /// Authorize an intent
    Authorize(Box<authorize::Args>),
    /// Execute an intent; repeating the command does nothing twice
    Execute(Box<execute::Args>),
    /// Show an intent with its transactions, or one transaction
    Show(Box<show::Args>),
    /// Undo an executed transaction; a second receipt proves it
    Compensate(Box<compensate::Args>),
    /// Withdraw an intent before it is executed
    Cancel(Box<cancel::Args>),
    /// List the site's transactions, open ones first; needs the admin token
    List(Box<list::Args>),
    /// Check open transactions at the rail now; needs the admin token
    Reconcile(Box<reconcile::Args>),
    /// Record an outcome that the rail cannot report; needs the admin token
    Resolve(Box<resolve::Args>),
    /// Print the agent's public key; the key is created if there is none
    Key(Box<key::Args>),
}

impl TxSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run().await,
            Self::Authorize(args) => args.run().await,
            Self::Execute(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Compensate(args) => args.run().await,
            Self::Cancel(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Reconcile(args) => args.run().await,
            Self::Resolve(args) => args.run().await,
            Self::Key(args) => args.run(),
        }
    }
}
