//! The commands of the automation, which the binary has under both of its names, and shortcuts for the most used ones.

use clap::Subcommand;

use crate::commands::automation::api::ApiArgs;
use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::{job, pipeline, plugin, schedule, system};
use crate::failure::{self, Exit};

#[derive(Debug, Subcommand)]
pub(crate) enum AutomationCommand {
    /// Start, inspect and reload the automation service
    #[command(subcommand)]
    System(system::SystemSubcommand),
    /// List, run, create and check plugins of the automation
    #[command(subcommand)]
    Plugin(plugin::PluginSubcommand),
    /// Inspect, cancel and retry jobs of the automation
    #[command(subcommand)]
    Job(job::JobSubcommand),
    /// List, show and run pipelines of the automation
    #[command(subcommand)]
    Pipeline(pipeline::PipelineSubcommand),
    /// List schedules of the automation and their next runs; pause, resume or run them
    #[command(subcommand)]
    Schedule(schedule::ScheduleSubcommand),
    /// List queued and running jobs of the automation, oldest first
    Queue(job::QueueArgs),
    /// Show the log of finished attempts of the automation's jobs, newest first
    Logs(job::LogsArgs),
    /// Describe all commands and pipelines in Markdown; short for `system skills`
    Skills(system::SkillsArgs),
    /// Send any HTTP request to the automation service
    Api(ApiArgs),
    /// Run a command of a plugin of the automation; short for `plugin run`
    Run(plugin::PluginRunArgs),
    /// List the plugins of the automation; short for `plugin list`
    Plugins(plugin::PluginListArgs),
}

impl AutomationCommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let json = self.tree().output.json;
        match self.act() {
            Err(error) if json => failure::report_json(&error),
            ended => ended,
        }
    }

    fn act(self) -> anyhow::Result<Exit> {
        match self {
            Self::System(action) => action.run(),
            Self::Plugin(action) => action.run(),
            Self::Job(action) => action.run(),
            Self::Pipeline(action) => action.run(),
            Self::Schedule(action) => action.run(),
            Self::Queue(args) => args.run(),
            Self::Logs(args) => args.run(),
            Self::Skills(args) => args.run(),
            Self::Api(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Plugins(args) => args.run(),
        }
    }

    fn tree(&self) -> &TreeArgs {
        match self {
            Self::System(action) => action.tree(),
            Self::Plugin(action) => action.tree(),
            Self::Job(action) => action.tree(),
            Self::Pipeline(action) => action.tree(),
            Self::Schedule(action) => action.tree(),
            Self::Queue(args) => &args.service.tree,
            Self::Logs(args) => &args.service.tree,
            Self::Skills(args) => &args.service.tree,
            Self::Api(args) => &args.service.tree,
            Self::Run(args) => &args.service.tree,
            Self::Plugins(args) => &args.service.tree,
        }
    }
}
