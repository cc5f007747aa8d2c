//! Commands for the automation service: start, inspect and repair.

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
pub(crate) enum SystemSubcommand {
    /// Run the automation service in the foreground
    Start(start::Args),
    /// Show whether the service runs, and the health of the service and its plugins
    Status(status::StatusArgs),
    /// Close the breaker of a plugin, so that its schedules run again
    Reset(breaker::ResetArgs),
    /// Show the breaker of a plugin and its history
    Breaker(breaker::BreakerShowArgs),
    /// Reload the configuration of the running service
    Reload(reload::Args),
    /// Show the facts of a plugin, newest first
    PluginFacts(breaker::FactsArgs),
    /// List the schedules with their open jobs
    Scheduler(schedule::ScheduleListArgs),
    /// Check configuration, plugins, breakers and schedules of the automation for problems
    Doctor(checks::DoctorArgs),
    /// Check the whole ledger while no service runs
    Selfcheck(checks::SelfcheckArgs),
    /// Save ledger, configuration and plugins in a new tar.gz
    Backup(backup::Args),
    /// Describe all commands and pipelines in Markdown
    Skills(skills::SkillsArgs),
}

impl SystemSubcommand {
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
