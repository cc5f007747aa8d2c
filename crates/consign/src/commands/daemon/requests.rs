//! Commands that are one request to the daemon.

use serde_json::json;

use super::{DaemonSelector, lines};
use crate::failure::Exit;
use crate::out;

/// Prints what the daemon answers.
pub(super) async fn show(target: &DaemonSelector, path: &str) -> anyhow::Result<Exit> {
    let answer = target.link()?.get(path).await?;
    target.print(&answer, lines)
}

/// Changes something in the daemon.
pub(super) async fn order(target: &DaemonSelector, path: &str) -> anyhow::Result<Exit> {
    let answer = target.link()?.post(path, &json!({})).await?;
    target.print(&answer, lines)
}

/// Prints the metrics as they are; they are text also with `--json`.
pub(super) async fn metrics(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let text = target
        .link()?
        .text(consign_mesh::ipc::path::METRICS)
        .await?;
    out::data(&text)?;
    Ok(Exit::Done)
}
