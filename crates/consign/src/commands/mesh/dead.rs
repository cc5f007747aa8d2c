//! `consign mesh dead SLUG`

use serde_json::Value;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// How many, at most 500
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let found = client.mesh_dead(&self.slug, self.limit).await?;
        self.operator.print(&found, |found| {
            let items: Vec<Vec<String>> = rows(found, "items").iter().map(row).collect();
            if items.is_empty() {
                out::note("no dead items");
                return Ok(());
            }
            let heading = ["DEAD", "QUEUE", "SENDER", "MESSAGE", "ITEM", "REASON"];
            out::data(&render::table(&heading, &items))
        })
    }
}

fn row(item: &Value) -> Vec<String> {
    vec![
        super::time(item, "dead_at"),
        cell(item, "queue"),
        cell(item, "sender_name"),
        cell(item, "client_message_id"),
        cell(item, "item_id"),
        cell(item, "reason"),
    ]
}
