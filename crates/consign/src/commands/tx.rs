//! Agent transactions: signed intents, carried out once, with receipts.
//!
//! Invariant: what moves something goes out under an idempotency key that was on disk before the first attempt, so the same
//! command, repeated after whatever happened, does nothing twice.

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
An intent says what may be done, for how much and until when. It is made (create), consented to
(authorize) and carried out (execute); what was done can be undone (compensate), what was not can
be withdrawn (cancel).

Whatever breaks on the way, type the same command again: authorize, execute and compensate keep
their idempotency keys in the directory of the agent (--state), so nothing happens twice.";

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Make an intent and sign it
    Create(Box<create::Args>),
    /// Consent to an intent
    Authorize(Box<authorize::Args>),
    /// Carry an intent out, once, however often this is repeated
    Execute(Box<execute::Args>),
    /// Show an intent with its transactions, or one transaction
    Show(Box<show::Args>),
    /// Undo what was executed; a second receipt proves it
    Compensate(Box<compensate::Args>),
    /// Withdraw an intent before anything was done
    Cancel(Box<cancel::Args>),
    /// List the site's transactions, those that are not over first; needs the admin token
    List(Box<list::Args>),
    /// Ask the rail now about what is not over; needs the admin token
    Reconcile(Box<reconcile::Args>),
    /// Say what became of a transaction that no rail can tell; needs the admin token
    Resolve(Box<resolve::Args>),
    /// Print the agent's public key; the key is made if there is none
    Key(Box<key::Args>),
}

impl Action {
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
