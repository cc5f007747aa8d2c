//! `consign mesh dedupe SLUG`

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
        let found = client.mesh_dedupe(&self.slug).await?;
        self.operator.print(&found, |found| {
            let conflicts: Vec<Vec<String>> = rows(found, "conflicts").iter().map(row).collect();
            if !conflicts.is_empty() {
                out::data(&render::table(&["MEMBER", "CONFLICTS"], &conflicts))?;
            }
            let waiting = cell(found, "waiting");
            out::note(&format!(
                "{} members used an id twice for different messages since the start of the server; {waiting} deliveries wait",
                conflicts.len()
            ));
            Ok(())
        })
    }
}

fn row(conflict: &Value) -> Vec<String> {
    vec![cell(conflict, "member_id"), cell(conflict, "mismatches")]
}
