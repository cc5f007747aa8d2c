//! `job logs` and `logs [PLUGIN]`

use std::fmt::Write as _;

use serde_json::Value;

use crate::commands::automation::ask::{ask, cell};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;
use crate::system::query;

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Only what this plugin did
    #[arg(value_name = "PLUGIN")]
    name: Option<String>,

    /// The same
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    plugin: Option<String>,

    /// Only the attempts of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// succeeded, failed, `timed_out` or dead
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// Only attempts with this text in their output or error
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// Only attempts that ended at or after this instant, such as 2026-02-25T10:00:00Z
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,

    /// Only attempts that ended at or before this instant
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,

    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    /// What the plugin answered as well
    #[arg(long)]
    include_result: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl LogsArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let with_result = self.include_result || self.tree.verbose;
        let wanted = query(&[
            ("plugin", self.name.or(self.plugin)),
            ("job_id", self.job),
            ("status", self.status),
            ("query", self.query),
            ("from", self.from),
            ("to", self.to),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("include_result", with_result.then(|| "true".to_owned())),
        ]);
        ask(&self.tree, &format!("/job-logs{wanted}"), |answer| {
            let logs = answer["logs"].as_array().into_iter().flatten();
            logs.map(entry).collect::<Vec<_>>().concat()
        })
    }
}

/// One line for the attempt, and what it left behind below it.
pub(super) fn entry(log: &Value) -> String {
    let parts = ["completed_at", "status", "plugin", "command", "job_id"];
    let line: Vec<String> = parts.iter().map(|key| cell(&log[*key])).collect();
    let mut text = format!("{}  attempt {}\n", line.join("  "), cell(&log["attempt"]));
    for key in ["last_error", "stderr", "result"] {
        if !log[key].is_null() {
            let _ = writeln!(text, "    {key}: {}", cell(&log[key]));
        }
    }
    text
}
