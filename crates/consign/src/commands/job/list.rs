//! `job list` and `queue`

use crate::commands::automation::ask::{JOB_COLUMNS, ask, rows};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;
use crate::system::query;

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only jobs of this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,

    /// Only jobs of this command
    #[arg(long, value_name = "NAME")]
    command: Option<String>,

    /// queued, running, succeeded, failed, `timed_out` or dead
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueArgs {
    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl ListArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query(&[
            ("plugin", self.plugin),
            ("command", self.command),
            ("status", self.status),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        ask(&self.tree, &format!("/jobs{wanted}"), |answer| {
            rows(&answer["jobs"], JOB_COLUMNS)
        })
    }
}

impl QueueArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query(&[("limit", self.limit.map(|limit| limit.to_string()))]);
        ask(&self.tree, &format!("/queue{wanted}"), |answer| {
            rows(&answer["jobs"], JOB_COLUMNS)
        })
    }
}
