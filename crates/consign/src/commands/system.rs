//! The automation service as a whole: started, looked at, mended.

mod backup;
mod breaker;
mod checks;
mod health;
mod reload;
mod skills;
mod start;
mod status;

use clap::Subcommand;

use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::schedule;
use crate::failure::Exit;

pub(crate) use skills::SkillsArgs;
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
    /// List the schedules with the jobs of each that are in flight
    Scheduler(schedule::ListArgs),
    /// Say what needs a hand: configuration, plugins, breakers, schedules
    Doctor(checks::DoctorArgs),
    /// Read the whole ledger while no service runs, and say what is wrong with it
    Selfcheck(checks::SelfcheckArgs),
    /// Save ledger, configuration and plugins in a new tar.gz
    Backup(backup::Args),
    /// Describe in Markdown what can be asked for
    Skills(skills::SkillsArgs),
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
            Self::Scheduler(args) => schedule::in_flight(&args.service),
            Self::Doctor(args) => args.run(),
            Self::Selfcheck(args) => args.run(),
            Self::Backup(args) => args.run(),
            Self::Skills(args) => args.run(),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::Start(args) => &args.tree,
            Self::Status(args) => &args.service.tree,
            Self::Reset(args) => &args.service.tree,
            Self::Breaker(args) => &args.service.tree,
            Self::Reload(args) => &args.service.tree,
            Self::PluginFacts(args) => &args.service.tree,
            Self::Scheduler(args) => &args.service.tree,
            Self::Doctor(args) => &args.service.tree,
            Self::Selfcheck(args) => &args.tree,
            Self::Backup(args) => &args.tree,
            Self::Skills(args) => &args.service.tree,
        }
    }
}
