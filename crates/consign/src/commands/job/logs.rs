//! `job logs [PLUGIN|JOB]` and `logs [PLUGIN|JOB]`

use std::fmt::Write as _;

use consign_automation::runtime::parse_job_id;
use serde_json::Value;

use crate::commands::automation::request::{cell, get, print};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::{path_segment, query_string};
use crate::{ductile, render};

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Only attempts of this plugin, or of the job with this id
    #[arg(value_name = "PLUGIN|JOB")]
    name: Option<String>,

    /// Only attempts of this plugin
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    plugin: Option<String>,

    /// Only attempts of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// succeeded, failed, `timed_out` or dead
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// Only attempts with this text in their output or error
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// Only attempts that ended at or after this time, such as 2026-02-25T10:00:00Z
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,

    /// Only attempts that ended at or before this time
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,

    /// The maximum number of attempts
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    /// Include the response of the plugin
    #[arg(long)]
    include_result: bool,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl LogsArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let with_result = self.include_result || self.service.tree.verbose;
        let (job, name) = job_or_plugin(self.name);
        let (job, plugin) = (self.job.or(job), self.plugin.or(name));
        let wanted = query_string(&[
            ("plugin", plugin.clone()),
            ("job_id", job.clone()),
            ("status", self.status),
            ("query", self.query),
            ("from", self.from),
            ("to", self.to),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("include_result", with_result.then(|| "true".to_owned())),
        ]);
        let answer = get(&self.service, &format!("/job-logs{wanted}"))?;
        let is_empty = answer["logs"].as_array().is_none_or(Vec::is_empty);
        // An empty list may also mean a mistyped name, so its existence is checked; a remote service may not allow that.
        if let Some(job) = job.filter(|_| is_empty) {
            get(&self.service, &format!("/job/{}", path_segment(&job)))?;
        }
        if let Some(plugin) = plugin.filter(|_| is_empty && self.service.api_url.is_none()) {
            get(&self.service, &format!("/plugin/{}", path_segment(&plugin)))?;
        }
        print(&self.service.tree, &answer, |answer| {
            let logs = answer["logs"].as_array().into_iter().flatten();
            logs.map(entry).collect::<Vec<_>>().concat()
        })
    }
}

/// The id of a job or the name of a plugin. A plugin whose name looks like an id can be named with `--plugin`.
fn job_or_plugin(name: Option<String>) -> (Option<String>, Option<String>) {
    match name {
        Some(name) if parse_job_id(&name).is_some() => (Some(name), None),
        name => (None, name),
    }
}

/// One line for the attempt, and its output below.
pub(super) fn entry(log: &Value) -> String {
    let parts = ["completed_at", "status", "plugin", "command", "job_id"];
    let line: Vec<String> = parts.iter().map(|key| cell(&log[*key])).collect();
    let mut text = format!("{}  attempt {}\n", line.join("  "), cell(&log["attempt"]));
    let text_of = |key: &str| log[key].as_str().map(str::trim_end);
    for key in ["last_error", "stderr", "result"] {
        let said = match text_of(key) {
            Some(said) => render::block(said, 8),
            None => cell(&log[key]),
        };
        // What a plugin wrote is often the error itself.
        let is_repeated = key == "stderr"
            && text_of("last_error").is_some_and(|error| {
                text_of("stderr").is_some_and(|stderr| error.contains(stderr))
            });
        if !said.is_empty() && !is_repeated {
            let space = if said.starts_with('\n') { "" } else { " " };
            let _ = writeln!(text, "    {key}:{space}{said}");
        }
    }
    if log["output_left_out"] == true {
        let id = cell(&log["job_id"]);
        let where_it_is = ductile::typed(&format!("`job show {id}` has it"));
        let _ = writeln!(
            text,
            "    its output is left out of this long list; {where_it_is}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_attempt_left_behind_ends_without_its_newline() {
        let text = entry(&json!({"status": "failed", "stderr": "no luck\n", "last_error": null}));
        assert!(text.ends_with("    stderr: no luck\n"), "{text}");
        assert!(!text.contains("last_error"), "{text}");
    }

    #[test]
    fn an_error_of_many_lines_is_shown_once_and_as_lines() {
        let error = "Traceback (most recent call last):\n  File x\nValueError: no paper\n";
        let text = entry(&json!({"status": "failed", "stderr": error, "last_error": error}));
        let expected = "    last_error:\n        Traceback (most recent call last):\n          File x\n        ValueError: no paper\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(!text.contains("stderr"), "{text}");
        let other = entry(&json!({"stderr": "more\n", "last_error": "exit status 1"}));
        assert!(
            other.ends_with("    last_error: exit status 1\n    stderr: more\n"),
            "{other}"
        );
    }
}
