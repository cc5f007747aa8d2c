//! The automation service as a whole: started, looked at, mended.

mod breaker;
mod reload;
mod start;
mod status;

use clap::Subcommand;

use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::schedule;
use crate::failure::Exit;

pub(crate) use status::StatusArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run the automation service in the foreground
    Start(start::Args),
    /// Tell whether the service runs, and how it and its plugins are
    Status(status::StatusArgs),
    /// Close the breaker of a plugin, so that the clock starts it again
    Reset(breaker::ResetArgs),
    /// Show the breaker of a plugin and its history
    Breaker(breaker::ShowArgs),
    /// Let the running service read its configuration again
    Reload(reload::Args),
    /// Show what a plugin has observed, newest first
    PluginFacts(breaker::FactsArgs),
    /// List the schedules; the same as `schedule list`
    Scheduler(schedule::ListArgs),
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Start(args) => args.run(),
            Self::Status(args) => args.run(),
            Self::Reset(args) => args.run(),
            Self::Breaker(args) => args.run(),
            Self::Reload(args) => args.run(),
            Self::PluginFacts(args) => args.run(),
            Self::Scheduler(args) => schedule::list(&args.tree),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::Start(args) => &args.tree,
            Self::Status(args) => &args.tree,
            Self::Reset(args) => &args.tree,
            Self::Breaker(args) => &args.tree,
            Self::Reload(args) => &args.tree,
            Self::PluginFacts(args) => &args.tree,
            Self::Scheduler(args) => &args.tree,
        }
    }
}
