//! `consign mesh members SLUG`

use serde_json::Value;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Show revoked members too
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let found = client.mesh_members(&self.slug, self.all).await?;
        self.operator.print(&found, |found| {
            let members: Vec<Vec<String>> = rows(found, "members").iter().map(row).collect();
            if members.is_empty() {
                out::note("no members; invite some with: consign mesh invite SLUG");
                return Ok(());
            }
            let heading = ["NAME", "ROLE", "JOINED", "REVOKED", "COPY SUSPECTED", "KEY"];
            out::data(&render::table(&heading, &members))
        })
    }
}

fn row(member: &Value) -> Vec<String> {
    vec![
        cell(member, "name"),
        cell(member, "role"),
        super::time(member, "joined_at"),
        super::time(member, "revoked_at"),
        super::time(member, "clone_suspected_at"),
        cell(member, "pubkey"),
    ]
}
