//! `consign mesh topics SLUG`

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
        let found = client.mesh_topics(&self.slug).await?;
        self.operator.print(&found, |found| {
            let topics: Vec<Vec<String>> = rows(found, "topics").iter().map(row).collect();
            if topics.is_empty() {
                out::note("no topics");
                return Ok(());
            }
            let heading = ["NAME", "MEMBERS", "VISIBILITY", "QUEUES", "CREATED", "ID"];
            out::data(&render::table(&heading, &topics))
        })
    }
}

fn row(topic: &Value) -> Vec<String> {
    let queues: Vec<String> = rows(topic, "queues")
        .iter()
        .map(|queue| cell(queue, "queue"))
        .collect();
    vec![
        cell(topic, "name"),
        cell(topic, "member_count"),
        cell(topic, "visibility"),
        if queues.is_empty() {
            "-".to_owned()
        } else {
            queues.join(", ")
        },
        super::time(topic, "created_at"),
        cell(topic, "topic_id"),
    ]
}
