//! Queries about jobs and the service.
//!
//! Invariant: a query changes nothing and reads a bounded number of rows. Payloads may be large, so lists and counts use
//! outlines, and whole rows are held one at a time. `http::views` renders the results; the command line shows the same shapes.

mod checks;
mod inspect;
mod jobs;
mod logs;
mod overview;
pub(super) mod response_budget;
mod runs;

use consign_engine::Outline;
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;

pub use checks::{ScheduleInFlight, ServiceCheck};
pub use inspect::{Ancestor, Inspection, JobContext};
pub use jobs::{JobFilter, JobInfo, JobList, JobTree, TREE_MAX};
pub use logs::{LogCursor, LogEntry, LogFilter, LogPage};
pub use overview::{
    Health, JobStats, LastRun, PluginLane, PluginStateInfo, PluginStatus, QueueFigures,
    ServiceStatus,
};
pub use runs::{PipelineRun, worst};

pub use super::wait_for_tree::TreeOutcome;

pub(super) fn is_over(intent: &Intent) -> bool {
    intent.profile.profile().is_terminal(intent.state)
}

fn is_job(intent: &Intent) -> bool {
    intent.profile == ProfileId::Automation
}

/// The number of the current or next attempt.
fn attempt_of(job: &Outline) -> u32 {
    job.attempts + u32::from(job.state == State::Queued)
}
