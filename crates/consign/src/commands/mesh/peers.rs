//! `consign mesh peers SLUG`

use serde_json::Value;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let found = client.mesh_peers(&self.slug).await?;
        self.operator.print(&found, |found| {
            let peers: Vec<Vec<String>> = rows(found, "peers").iter().map(row).collect();
            if peers.is_empty() {
                out::note("no connections");
                return Ok(());
            }
            let heading = ["NAME", "ROLE", "STATUS", "HOST", "CONNECTED", "KEY"];
            out::data(&render::table(&heading, &peers))
        })
    }
}

fn row(peer: &Value) -> Vec<String> {
    vec![
        cell(peer, "name"),
        cell(peer, "role"),
        cell(peer, "status"),
        cell(peer, "hostname"),
        super::time(peer, "connected_at"),
        cell(peer, "pubkey"),
    ]
}
