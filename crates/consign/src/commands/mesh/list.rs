//! `consign mesh list`

use serde_json::Value;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let found = self.operator.admin.client()?.meshes().await?;
        self.operator.print(&found, |found| {
            let meshes: Vec<Vec<String>> = rows(found, "meshes").iter().map(row).collect();
            if meshes.is_empty() {
                out::note("no meshes; create one with: consign mesh create SLUG");
                return Ok(());
            }
            let heading = ["SLUG", "ID", "IDS KEPT", "MESSAGES KEPT", "NAME"];
            out::data(&render::table(&heading, &meshes))
        })
    }
}

fn row(mesh: &Value) -> Vec<String> {
    vec![
        cell(mesh, "slug"),
        cell(mesh, "mesh_id"),
        super::dedupe(mesh),
        format!("{} days", cell(mesh, "message_days")),
        cell(mesh, "name"),
    ]
}
