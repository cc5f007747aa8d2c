//! `consign mesh invites SLUG`

use serde_json::Value;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows, time_cell};
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
        let found = client.mesh_invites(&self.slug).await?;
        self.operator.print(&found, |found| {
            let invites: Vec<Vec<String>> = rows(found, "invites").iter().map(row).collect();
            if invites.is_empty() {
                out::note("no invites");
                return Ok(());
            }
            let heading = ["USES", "ROLE", "EXPIRES", "REVOKED", "ID"];
            out::data(&render::table(&heading, &invites))
        })
    }
}

fn row(invite: &Value) -> Vec<String> {
    let is_revoked = invite["revoked"].as_bool() == Some(true);
    vec![
        format!("{}/{}", cell(invite, "uses"), cell(invite, "uses_max")),
        cell(invite, "role"),
        time_cell(invite, "expires_at"),
        if is_revoked { "yes" } else { "-" }.to_owned(),
        cell(invite, "id"),
    ]
}
