//! `consign daemon status`

use consign_mesh::ipc::path;

use super::{DaemonSelector, lines};
use crate::failure::Exit;

pub(super) async fn run(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let health = target.link()?.get(path::HEALTH).await?;
    target.print(&health, lines)
}
