//! List, show, retry and delete dead letters. All commands need the admin token.

mod list;
mod show;

use clap::Subcommand;

use crate::commands::intent::{FILTER_HELP, IdsArgs, OperatorStep};
use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadSubcommand {
    /// List dead letters, latest first
    #[command(after_help = FILTER_HELP)]
    List(Box<list::Args>),
    /// Show a dead letter with its payload
    Show(Box<show::Args>),
    /// Give dead letters a fresh start, with all their attempts
    Retry(Box<IdsArgs>),
    /// Delete dead letters and their history
    Delete(Box<IdsArgs>),
}

impl DeadSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Retry(args) => args.run(OperatorStep::Retry, false, among_dead).await,
            Self::Delete(args) => args.run(OperatorStep::Delete, false, among_dead).await,
        }
    }
}

/// The same condition, on dead letters alone.
fn among_dead(filter: &str) -> String {
    format!("{filter} state:dead face:intent")
}
