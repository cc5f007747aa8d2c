//! List, show, follow and end bulk jobs. All commands need the admin token.

mod begin;
mod cancel;
mod list;
mod show;
mod watch;

use clap::Subcommand;
use consign_client::BulkProgress;

use crate::failure::Exit;
use crate::{out, render};

pub(crate) use begin::BulkBegin;

#[derive(Debug, Subcommand)]
pub(crate) enum BulkSubcommand {
    /// List bulk jobs, newest first
    List(Box<list::Args>),
    /// Show a bulk job and how far it is
    Show(Box<show::Args>),
    /// Follow a bulk job until it ends
    Watch(Box<watch::Args>),
    /// End a bulk job; what it has changed stays changed
    Cancel(Box<cancel::Args>),
}

impl BulkSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Watch(args) => args.run().await,
            Self::Cancel(args) => args.run().await,
        }
    }
}

/// One bulk job.
#[derive(Debug, clap::Args)]
struct OneBulkArgs {
    /// The job
    id: String,

    #[command(flatten)]
    output: crate::commands::OutputArgs,

    #[command(flatten)]
    admin: crate::link::AdminArgs,
}

fn fields(job: &BulkProgress) -> String {
    let refused: Vec<String> = job
        .refused
        .iter()
        .map(|(code, count)| format!("{count} {}", render::safe(code)))
        .collect();
    let refused = (!refused.is_empty()).then(|| refused.join(", "));
    let first: Vec<String> = job
        .refusals
        .iter()
        .map(|refusal| format!("    {}  {}", refusal.id, render::safe(&refusal.code)))
        .collect();
    let first = (!first.is_empty()).then(|| format!("\n{}", first.join("\n")));
    render::fields(&[
        ("id", Some(job.id.clone())),
        ("action", Some(job.action.clone())),
        ("filter", Some(render::safe(&job.filter))),
        ("state", Some(job.state.clone())),
        ("matching", job.matching.map(|count| count.to_string())),
        ("examined", Some(job.examined.to_string())),
        ("done", Some(job.done.to_string())),
        ("refused", refused),
        ("began", Some(render::time(job.created_at))),
        ("ended", job.ended_at.map(render::time)),
        ("first refusals", first),
    ])
}

const BAR_CHARS: u64 = 30;

/// How far a job is, on one line.
fn progress(job: &BulkProgress) -> String {
    let treated = job.done + job.refused_count();
    let Some(matching) = job.matching.filter(|matching| *matching > 0) else {
        return format!(
            "{}: {treated} of many, {} rows examined",
            job.action, job.examined
        );
    };
    let filled = (treated * BAR_CHARS / matching).min(BAR_CHARS);
    let filled = usize::try_from(filled).unwrap_or(0);
    let empty = usize::try_from(BAR_CHARS).unwrap_or(0) - filled;
    let bar = format!("{}{}", "#".repeat(filled), "-".repeat(empty));
    format!("{} [{bar}] {treated}/{matching}", job.action)
}

/// What a job did, on one line.
fn summary(job: &BulkProgress) -> String {
    let done = match job.action.as_str() {
        "retry" => "retried",
        "cancel" => "cancelled",
        _ => "deleted",
    };
    let refused = match job.refused_count() {
        0 => String::new(),
        count => format!(", {count} not changed: consign bulk show {}", job.id),
    };
    let early = if job.state == "cancelled" {
        " before it was cancelled"
    } else {
        ""
    };
    format!("{} {done}{early}{refused}", job.done)
}

/// 0 if every row was changed, 4 if some were refused, 1 if the job was cancelled.
fn exit(job: &BulkProgress) -> Exit {
    if job.state == "cancelled" {
        Exit::Failed
    } else if job.refused_count() > 0 {
        Exit::Refused
    } else {
        Exit::Done
    }
}

/// Follows a job until it ends, with a progress bar on a terminal.
async fn follow(client: &consign_client::Client, id: &str) -> anyhow::Result<BulkProgress> {
    let mut pause = std::time::Duration::from_millis(100);
    loop {
        let job = client.bulk_job(id).await?;
        if matches!(job.state.as_str(), "done" | "cancelled") {
            out::progress_done();
            return Ok(job);
        }
        out::progress(&progress(&job));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(std::time::Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, done: u64, matching: Option<u64>) -> BulkProgress {
        serde_json::from_value(serde_json::json!({
            "id": "b1", "action": "retry", "filter": "state:dead", "state": state, "matching": matching,
            "examined": 70, "done": done, "refused": {"changed": 2}, "refusals": [{"id": "a1", "code": "changed"}],
            "created_at": 1_700_000_000.0, "ended_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn a_job_reads_as_fields_and_as_a_bar() {
        assert_eq!(
            fields(&job("running", 13, Some(30))),
            "id              b1\n\
             action          retry\n\
             filter          state:dead\n\
             state           running\n\
             matching        30\n\
             examined        70\n\
             done            13\n\
             refused         2 changed\n\
             began           2023-11-14T22:13:20Z\n\
             first refusals\n    a1  changed\n"
        );
        let bar = progress(&job("running", 13, Some(30)));
        assert_eq!(
            bar,
            format!("retry [{}{}] 15/30", "#".repeat(15), "-".repeat(15))
        );
        assert_eq!(
            progress(&job("running", 13, None)),
            "retry: 15 of many, 70 rows examined"
        );
    }

    #[test]
    fn the_exit_code_says_whether_every_row_was_changed() {
        let done = job("done", 28, Some(30));
        assert_eq!(
            summary(&done),
            "28 retried, 2 not changed: consign bulk show b1"
        );
        assert_eq!(exit(&done), Exit::Refused);
        assert_eq!(exit(&job("cancelled", 3, None)), Exit::Failed);
        let clean = BulkProgress {
            refused: std::collections::BTreeMap::new(),
            ..done
        };
        assert_eq!(
            (summary(&clean).as_str(), exit(&clean)),
            ("28 retried", Exit::Done)
        );
    }
}
