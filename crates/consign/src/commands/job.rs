//! Commands for jobs: list, inspect, cancel and retry.

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
pub(crate) enum JobSubcommand {
    /// List jobs, newest first
    List(list::JobListArgs),
    /// Show one job
    Show(show::JobShowArgs),
    /// Show one job with its ancestors, baggage, transitions and attempts
    Inspect(show::JobShowArgs),
    /// Show the log of finished attempts, newest first
    Logs(logs::LogsArgs),
    /// Show a job and its descendants
    Tree(show::JobShowArgs),
    /// Cancel a queued or running job
    Cancel(change::Args),
    /// Retry a job that is failed, timed out or dead
    ///
    /// It gets its remaining attempts, or one more if it has used them all. A job that succeeded is not retried; start another
    /// one with `plugin run` or `pipeline run`.
    Retry(change::Args),
}

impl JobSubcommand {
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
