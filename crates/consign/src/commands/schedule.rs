//! Commands for schedules: list, next runs, pause, resume and run.

mod next;

use clap::Subcommand;
use jiff::Timestamp;
use serde_json::Value;

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
        let (schedules, late) = with_late(&answer["schedules"], Timestamp::now());
        let mut text = rows(&schedules, &columns);
        if late {
            text.push_str(LATE);
        }
        text
    })
}

/// A schedule is checked about once per tick, so it may be due for a moment.
const LATE_AFTER_S: i64 = 5;
const LATE: &str = "
due: its time has come. It runs at the next tick of the service, unless an open job of the
same command, its breaker or its time window holds it back; see the open jobs with queue
";

/// The list in which an active schedule whose time has passed is marked as due.
fn with_late(schedules: &Value, now: Timestamp) -> (Value, bool) {
    let (mut schedules, mut late) = (schedules.clone(), false);
    for schedule in schedules.as_array_mut().into_iter().flatten() {
        let next = schedule["next_run_at"]
            .as_str()
            .and_then(|at| at.parse().ok());
        let is_late =
            next.is_some_and(|next: Timestamp| now.duration_since(next).as_secs() > LATE_AFTER_S);
        if schedule["status"] == "active" && is_late {
            schedule["status"] = "due".into();
            late = true;
        }
    }
    (schedules, late)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schedule_whose_time_has_passed_is_due_and_not_just_active() {
        let now: Timestamp = "2026-11-19T12:00:00Z".parse().unwrap();
        let list = json!([
            {"status": "active", "next_run_at": "2026-11-19T11:56:00Z"},
            {"status": "active", "next_run_at": "2026-11-19T11:59:58Z"},
            {"status": "active", "next_run_at": "2026-11-19T12:01:00Z"},
            {"status": "paused_manual", "next_run_at": "2026-11-19T11:00:00Z"},
            {"status": "exhausted", "next_run_at": null},
        ]);
        let (shown, late) = with_late(&list, now);
        let states: Vec<&Value> = shown
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["status"])
            .collect();
        assert_eq!(
            states,
            ["due", "active", "active", "paused_manual", "exhausted"]
        );
        assert!(late);
    }
}
