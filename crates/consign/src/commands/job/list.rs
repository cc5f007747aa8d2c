//! `job list` and `queue`

use serde_json::Value;

use crate::commands::automation::request::{JOB_COLUMNS, get_and_print, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::query_string;

#[derive(Debug, clap::Args)]
pub(crate) struct JobListArgs {
    /// Only jobs of this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,

    /// Only jobs of this command
    #[arg(long, value_name = "NAME")]
    command: Option<String>,

    /// queued, running, succeeded, failed, `timed_out` or dead
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// The maximum number of jobs
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueArgs {
    /// The maximum number of jobs
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl JobListArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query_string(&[
            ("plugin", self.plugin),
            ("command", self.command),
            ("status", self.status),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        get_and_print(&self.service, &format!("/jobs{wanted}"), jobs_table)
    }
}

impl QueueArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query_string(&[("limit", self.limit.map(|limit| limit.to_string()))]);
        get_and_print(&self.service, &format!("/queue{wanted}"), jobs_table)
    }
}

/// The columns for the next retry and the error appear only if a job has them.
fn jobs_table(answer: &Value) -> String {
    let jobs = &answer["jobs"];
    let mut columns = JOB_COLUMNS.to_vec();
    for column in [("NEXT RETRY", "next_retry_at"), ("ERROR", "last_error")] {
        let mut each = jobs.as_array().into_iter().flatten();
        if each.any(|job| !job[column.1].is_null()) {
            columns.push(column);
        }
    }
    rows(jobs, &columns)
}
