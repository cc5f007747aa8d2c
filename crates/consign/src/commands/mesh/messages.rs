//! `consign mesh messages SLUG`

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
        let found = client.mesh_messages(&self.slug, self.limit).await?;
        self.operator.print(&found, |found| {
            let messages: Vec<Vec<String>> = rows(found, "messages").iter().map(row).collect();
            if messages.is_empty() {
                out::note("no messages");
                return Ok(());
            }
            let heading = ["CREATED", "TO", "STATE", "SENDER", "ID", "MESSAGE"];
            out::data(&render::table(&heading, &messages))
        })
    }
}

fn row(message: &Value) -> Vec<String> {
    vec![
        super::time(message, "created_at"),
        format!(
            "{} {}",
            cell(message, "destination_kind"),
            cell(message, "destination_ref")
        ),
        cell(message, "state"),
        cell(message, "sender_member_id"),
        cell(message, "client_message_id"),
        cell(message, "message_id"),
    ]
}
