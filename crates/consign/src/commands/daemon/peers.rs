//! `consign daemon peers` and `consign daemon profile`

use consign_mesh::ipc::path;
use serde_json::{Map, Value};

use super::{DaemonSelector, columns, lines};
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(super) struct ProfileArgs {
    /// What this member works on
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,

    /// idle, working or dnd; messages of lower priority wait while it is not idle
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// Whether other members see this one
    #[arg(long, value_name = "BOOL")]
    visible: Option<bool>,
}

pub(super) async fn list(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let answer = target.link()?.get(path::PEERS).await?;
    target.print(&answer, |answer| {
        columns(
            answer,
            "peers",
            &["NAME", "STATUS", "ROLE", "KEY", "SUMMARY"],
            &[
                "displayName",
                "status",
                "peerRole",
                "memberPubkey",
                "summary",
            ],
        )
    })
}

impl ProfileArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let mut body = Map::new();
        if let Some(summary) = self.summary {
            body.insert("summary".to_owned(), summary.into());
        }
        if let Some(status) = self.status {
            body.insert("status".to_owned(), status.into());
        }
        if let Some(visible) = self.visible {
            body.insert("visible".to_owned(), visible.into());
        }
        let answer = target
            .link()?
            .post(path::PROFILE, &Value::Object(body))
            .await?;
        target.print(&answer, lines)
    }
}
