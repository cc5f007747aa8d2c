//! What the commands on a running automation share: a question and how its answer is shown, a change and how it is only tried.
//!
//! Invariant: `--dry-run` asks whether the thing is there and changes nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::config::tree::{Tree, TreeArgs};
use crate::failure::Exit;
use crate::system::{Alone, Reach, segment};
use crate::{out, render};
use consign_automation::config::Verify;
use consign_automation::program::Program;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs what a command does to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// Asks one thing and shows the answer.
pub(crate) fn ask(
    args: &TreeArgs,
    path: &str,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    let tree = args.find()?;
    let body = block_on(async {
        let reach = Reach::new(&tree, Alone::Look).await?;
        let answer = reach.get(path).await;
        reach.close().await?;
        Ok(answer?.body)
    })?;
    print(args, &body, show)
}

/// Asks what the configuration alone can tell when no service runs.
pub(crate) fn catalogue(
    args: &TreeArgs,
    path: &str,
    known: impl Fn(&Program) -> anyhow::Result<Value>,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    let tree = args.find()?;
    let body = block_on(async {
        match Reach::of_running(&tree).await? {
            Some(reach) => Ok(reach.get(path).await?.body),
            None => known(&load(&tree)?),
        }
    })?;
    print(args, &body, show)
}

pub(crate) fn load(tree: &Tree) -> anyhow::Result<Program> {
    Ok(tree.load(Verify::AsConfigured)?.0)
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

/// Something to be changed.
pub(crate) struct Change<'c> {
    /// A question that is refused if there is nothing to change.
    pub(crate) look: &'c str,
    pub(crate) post: &'c str,
    pub(crate) body: Option<Value>,
    /// In words, behind "would".
    pub(crate) what: &'c str,
}

pub(crate) fn change(
    args: &TreeArgs,
    dry_run: bool,
    change: &Change<'_>,
    show: impl Fn(&Value) -> String,
) -> anyhow::Result<Exit> {
    let tree = args.find()?;
    let body = block_on(async {
        let reach = Reach::new(&tree, Alone::Look).await?;
        let answer = if dry_run {
            reach.get(change.look).await
        } else {
            reach.post(change.post, change.body.as_ref()).await
        };
        reach.close().await?;
        Ok(answer?.body)
    })?;
    if dry_run {
        return would(args, change.what);
    }
    print(args, &body, show)
}

pub(crate) fn would(args: &TreeArgs, what: &str) -> anyhow::Result<Exit> {
    if args.output.json {
        out::json(&json!({"dry_run": true, "would": what}))?;
    } else {
        out::data(&format!("would {}", render::safe(what)))?;
    }
    Ok(Exit::Done)
}

/// A job that was queued, and whether to wait until it and all that it brings about is over.
pub(crate) async fn follow(reach: &Reach, job_id: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("/job/{}/tree", segment(job_id));
    loop {
        let body = reach.get(&path).await?.body;
        let tree = body.as_array().cloned().unwrap_or_default();
        let open = |job: &Value| matches!(job["status"].as_str(), Some("queued" | "running"));
        if !tree.iter().any(open) {
            return Ok(tree);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A value of an answer as one cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => render::safe(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            render::safe(&value.to_string())
        }
    }
}

/// The rows of a list, one column per member.
pub(crate) fn rows(list: &Value, columns: &[(&str, &str)]) -> String {
    let heading: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let rows = list.as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = rows
        .map(|row| columns.iter().map(|(_, key)| cell(&row[*key])).collect())
        .collect();
    render::table(&heading, &rows)
}

/// The members of an object, each on its line; those that are objects or lists as JSON.
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
