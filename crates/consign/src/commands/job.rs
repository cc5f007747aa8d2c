//! Jobs: looked at, cancelled, run again.

mod change;
mod list;
mod logs;
mod show;
mod tree;

use clap::Subcommand;

use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;

pub(crate) use list::QueueArgs;
pub(crate) use logs::LogsArgs;
pub(crate) use tree::job_tree_table;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List jobs, newest first
    List(list::ListArgs),
    /// Show one job
    Show(show::ShowArgs),
    /// Show one job with its ancestors, its baggage, its moves and its attempts
    Inspect(show::ShowArgs),
    /// Show what jobs left in the log, newest first
    Logs(logs::LogsArgs),
    /// Show a job and everything it brought about
    Tree(show::ShowArgs),
    /// End a job, whether it waits or runs
    Cancel(change::Args),
    /// Run a job again that failed, timed out or is dead
    ///
    /// It gets what is left of its attempts, or one more if it has used them all. A job that
    /// succeeded is not run again; start another one with `plugin run` or `pipeline run`.
    Retry(change::Args),
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(),
            Self::Show(args) => args.show(),
            Self::Inspect(args) => args.inspect(),
            Self::Logs(args) => args.run(),
            Self::Tree(args) => args.tree(),
            Self::Cancel(args) => args.run("cancel"),
            Self::Retry(args) => args.run("retry"),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.service.tree,
            Self::Show(args) | Self::Inspect(args) | Self::Tree(args) => &args.service.tree,
            Self::Logs(args) => &args.service.tree,
            Self::Cancel(args) | Self::Retry(args) => &args.service.tree,
        }
    }
}
