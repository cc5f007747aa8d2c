//! Requests of commands to the automation: read and print, change with `--dry-run`, and wait for jobs.
//!
//! Invariant: `--dry-run` checks that the target exists and changes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::config::tree::{ConfigTree, TreeArgs};
use super::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::{ServiceClient, WhenStopped, path_segment};
use crate::{out, render};
use consign_automation::program::Program;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this long without output a command seems to hang.
const SILENT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Runs a future on a single-threaded runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// Requests `path` and prints the response.
pub(crate) fn get_and_print(
    service: &ServiceArgs,
    path: &str,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    print(&service.tree, &get(service, path)?, show)
}

/// The response to a request, from the service or from the ledger.
pub(crate) fn get(service: &ServiceArgs, path: &str) -> anyhow::Result<Value> {
    block_on(async {
        let client = service.client(WhenStopped::ReadLedger).await?;
        let answer = client.get(path).await;
        client.close().await?;
        Ok(answer?.body)
    })
}

/// Requests `path`, or answers from the configuration if no service runs.
pub(crate) fn get_or_load(
    service: &ServiceArgs,
    path: &str,
    known: impl Fn(&Program) -> anyhow::Result<Value>,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    let body = match service.get_if_running(path)? {
        Some(body) => body,
        None => known(&load(&service.tree.find()?)?)?,
    };
    print(&service.tree, &body, show)
}

pub(crate) fn load(tree: &ConfigTree) -> anyhow::Result<Program> {
    Ok(tree.load_readonly()?)
}

pub(crate) fn print(
    args: &TreeArgs,
    body: &Value,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    if args.output.json {
        out::json(body)?;
    } else {
        out::data(&show(body))?;
    }
    Ok(Exit::Done)
}

/// A change to make.
pub(crate) struct ChangeRequest<'c> {
    /// A request that fails if there is nothing to change.
    pub(crate) look: &'c str,
    pub(crate) post: &'c str,
    pub(crate) body: Option<Value>,
    /// A description that follows "would".
    pub(crate) what: &'c str,
}

pub(crate) fn change(
    service: &ServiceArgs,
    dry_run: bool,
    change: &ChangeRequest<'_>,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    let body = block_on(async {
        let client = service.client(WhenStopped::ReadLedger).await?;
        let answer = if dry_run {
            client.get(change.look).await
        } else {
            client.post(change.post, change.body.as_ref()).await
        };
        client.close().await?;
        Ok(answer?.body)
    })?;
    if dry_run {
        return print_would(&service.tree, change.what);
    }
    print(&service.tree, &body, show)
}

pub(crate) fn print_would(args: &TreeArgs, what: &str) -> anyhow::Result<Exit> {
    if args.output.json {
        out::json(&json!({"dry_run": true, "would": what}))?;
    } else {
        out::data(&format!("would {}", render::safe(what)))?;
    }
    Ok(Exit::Done)
}

/// Waits until a job and all its descendants are over; after a while prints once what it waits for.
pub(crate) async fn wait_for_job(
    client: &ServiceClient,
    job_id: &str,
) -> anyhow::Result<Vec<Value>> {
    let path = format!("/job/{}/tree", path_segment(job_id));
    let began = Instant::now();
    let mut is_noted = false;
    let mut failures = FailedAttempts::default();
    loop {
        let body = client.get(&path).await?.body;
        let tree = body.as_array().cloned().unwrap_or_default();
        for note in failures.notes(&tree) {
            out::note(&note);
            is_noted = true;
        }
        let is_open = |job: &&Value| matches!(job["status"].as_str(), Some("queued" | "running"));
        let Some(open) = tree.iter().find(is_open) else {
            return Ok(tree);
        };
        if !is_noted && began.elapsed() >= SILENT_WAIT_MAX {
            out::note(&wait_note(open));
            is_noted = true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The attempts of each job that were reported as failed.
#[derive(Default)]
struct FailedAttempts(BTreeMap<String, u64>);

impl FailedAttempts {
    /// A line for each job whose attempt has failed since, and that is tried again.
    fn notes(&mut self, tree: &[Value]) -> Vec<String> {
        let waits = |job: &&Value| job["status"] == "queued" && !job["last_error"].is_null();
        let mut notes = Vec::new();
        for job in tree.iter().filter(waits) {
            let failed = job["attempt"].as_u64().unwrap_or(1).saturating_sub(1);
            let known = self.0.entry(cell(&job["job_id"])).or_default();
            if failed > *known {
                *known = failed;
                notes.push(failure_note(job, failed));
            }
        }
        notes
    }
}

fn failure_note(job: &Value, failed: u64) -> String {
    let [plugin, command] = ["plugin", "command"].map(|key| cell(&job[key]));
    let of = match job["max_attempts"].as_u64() {
        Some(max) => format!(" of {max}"),
        None => String::new(),
    };
    let error = render::summary(
        job["last_error"].as_str().unwrap_or_default(),
        SUMMARY_CHARS,
    );
    let next = match job["next_retry_at"].as_str() {
        Some(at) => format!("; it is tried again at {}", render::safe(at)),
        None => String::new(),
    };
    format!("attempt {failed}{of} of {plugin} {command} failed: {error}{next}")
}

/// How much of an error is shown in a note or in a column.
const SUMMARY_CHARS: usize = 60;

fn wait_note(job: &Value) -> String {
    let [plugin, command, id, status] =
        ["plugin", "command", "job_id", "status"].map(|key| cell(&job[key]));
    format!("waiting for {plugin} {command}, job {id}, which is {status}")
}

/// A value as one table cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => render::safe(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            render::safe(&value.to_string())
        }
    }
}

/// A value below its name: a text of several lines as such.
pub(crate) fn block(value: &Value) -> String {
    match value.as_str() {
        Some(text) => render::block(text, 4),
        None => cell(value),
    }
}

/// The rows of a list, one column per field.
pub(crate) fn rows(list: &Value, columns: &[(&str, &str)]) -> String {
    let heading: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let rows = list.as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = rows
        .map(|row| {
            let each = columns.iter();
            each.map(|(_, key)| match row[*key].as_str() {
                Some(error) if *key == "last_error" => render::summary(error, SUMMARY_CHARS),
                _ => words(&row[*key]),
            })
            .collect()
        })
        .collect();
    render::table(&heading, &rows)
}

/// Joins a list of words.
fn words(value: &Value) -> String {
    let parts = value.as_array().into_iter().flatten();
    let parts: Vec<String> = parts.map(cell).collect();
    if value.is_array() {
        parts.join(", ")
    } else {
        cell(value)
    }
}

/// The fields of an object, one per line; nested objects and lists as JSON.
pub(crate) fn members(object: &Value) -> String {
    let pairs: Vec<(&str, Option<String>)> = object
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), Some(block(value))))
        .collect();
    render::fields(&pairs)
}

pub(crate) const JOB_COLUMNS: &[(&str, &str)] = &[
    ("JOB", "job_id"),
    ("PLUGIN", "plugin"),
    ("COMMAND", "command"),
    ("STATUS", "status"),
    ("ATTEMPT", "attempt"),
    ("CREATED", "created_at"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_attempt_is_reported_once_with_the_next_one() {
        let job = |status: &str, attempt: u64, error: Value| {
            json!([{"job_id": "j", "plugin": "ping", "command": "poll", "status": status, "attempt": attempt,
                "max_attempts": 4, "last_error": error, "next_retry_at": "2026-11-19T15:00:00Z"}])
        };
        let mut failures = FailedAttempts::default();
        let mut notes = |tree: &Value| failures.notes(tree.as_array().unwrap());
        assert!(notes(&job("queued", 1, Value::Null)).is_empty());
        assert!(notes(&job("running", 1, Value::Null)).is_empty());
        let error = json!("Traceback (most recent call last):\n  File x\nValueError: no paper\n");
        assert_eq!(
            notes(&job("queued", 2, error.clone())),
            [
                "attempt 1 of 4 of ping poll failed: ValueError: no paper; it is tried again at 2026-11-19T15:00:00Z"
            ]
        );
        assert!(notes(&job("queued", 2, error.clone())).is_empty());
        assert!(notes(&job("running", 2, error.clone())).is_empty());
        assert_eq!(notes(&job("queued", 3, error)).len(), 1);
    }

    #[test]
    fn an_error_of_many_lines_is_one_line_in_a_column_and_lines_below_a_name() {
        let error = "Traceback (most recent call last):\n\tFile x\nValueError: no\u{1b}[31m paper";
        let job = json!({"job_id": "j", "last_error": error});
        let table = rows(&json!([job]), &[("JOB", "job_id"), ("ERROR", "last_error")]);
        assert_eq!(table, "JOB  ERROR\nj    ValueError: no\\u{1b}[31m paper\n");
        assert_eq!(
            members(&job),
            "job_id      j\nlast_error\n    Traceback (most recent call last):\n        File x\n    ValueError: no\\u{1b}[31m paper\n"
        );
    }
}
