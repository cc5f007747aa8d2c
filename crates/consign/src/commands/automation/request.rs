//! Requests of commands to the automation: read and print, change with `--dry-run`, and wait for jobs.
//!
//! Invariant: `--dry-run` checks that the target exists and changes nothing.

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
    loop {
        let body = client.get(&path).await?.body;
        let tree = body.as_array().cloned().unwrap_or_default();
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

/// The rows of a list, one column per field.
pub(crate) fn rows(list: &Value, columns: &[(&str, &str)]) -> String {
    let heading: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let rows = list.as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = rows
        .map(|row| columns.iter().map(|(_, key)| words(&row[*key])).collect())
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
        .map(|(name, value)| (name.as_str(), Some(cell(value))))
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
