//! Commands for schedules: list, next runs, pause, resume and run.

mod next;

use clap::Subcommand;

use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::automation::request::{ChangeRequest, change, get_and_print, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::render;
use crate::system::path_segment;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleSubcommand {
    /// List the schedules and their state
    List(ScheduleListArgs),
    /// Show the next runs
    Next(next::Args),
    /// Pause a schedule until it is resumed
    Pause(ScheduleChangeArgs),
    /// Resume a paused schedule
    Resume(ScheduleChangeArgs),
    /// Run the job of a schedule now
    Run(ScheduleChangeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScheduleListArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScheduleChangeArgs {
    /// The plugin of the schedule
    plugin: String,

    /// The id of the schedule
    #[arg(default_value = "default")]
    id: String,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl ScheduleSubcommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => list(&args.service),
            Self::Next(args) => args.run(),
            Self::Pause(args) => change_schedule(&args, "pause"),
            Self::Resume(args) => change_schedule(&args, "resume"),
            Self::Run(args) => change_schedule(&args, "run"),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.service.tree,
            Self::Next(args) => &args.tree,
            Self::Pause(args) | Self::Resume(args) | Self::Run(args) => &args.service.tree,
        }
    }
}

pub(crate) fn list(service: &ServiceArgs) -> anyhow::Result<Exit> {
    get_and_print(service, "/schedules", |answer| {
        let columns = [
            ("PLUGIN", "plugin"),
            ("SCHEDULE", "schedule_id"),
            ("COMMAND", "command"),
            ("MODE", "mode"),
            ("STATUS", "status"),
            ("NEXT", "next_run_at"),
            ("LAST SUCCESS", "last_success_at"),
        ];
        rows(&answer["schedules"], &columns)
    })
}

/// The list with the open jobs of each schedule.
pub(crate) fn in_flight(service: &ServiceArgs) -> anyhow::Result<Exit> {
    get_and_print(service, "/scheduler/jobs", |answer| {
        let columns = [
            ("PLUGIN", "plugin"),
            ("SCHEDULE", "schedule_id"),
            ("COMMAND", "command"),
            ("MODE", "mode"),
            ("STATUS", "status"),
            ("NEXT", "next_run_at"),
            ("IN FLIGHT", "in_flight"),
        ];
        rows(&answer["jobs"], &columns)
    })
}

fn change_schedule(args: &ScheduleChangeArgs, verb: &str) -> anyhow::Result<Exit> {
    let (plugin, id) = (&args.plugin, &args.id);
    let path = format!("/schedule/{}/{}", path_segment(plugin), path_segment(id));
    let wanted = ChangeRequest {
        look: &path,
        post: &format!("{path}/{verb}"),
        body: None,
        what: &format!("{verb} the schedule {id} of {plugin}"),
    };
    change(&args.service, args.dry_run, &wanted, |answer| {
        let done = format!("{verb}: {plugin} {id}");
        // Only `run` starts a job.
        match answer["job_id"].as_str() {
            Some(job) => format!("{done}  {}", render::safe(job)),
            None => done,
        }
    })
}
