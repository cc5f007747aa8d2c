//! `consign mesh key list SLUG`

use serde_json::Value;

use crate::commands::beam::{cell, rows};
use crate::commands::mesh::{OperatorArgs, time};
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
        let found = client.mesh_keys(&self.slug).await?;
        self.operator.print(&found, |found| {
            let keys: Vec<Vec<String>> = rows(found, "keys").iter().map(row).collect();
            if keys.is_empty() {
                out::note("no API keys");
                return Ok(());
            }
            let heading = [
                "LABEL", "MAY", "TOPICS", "CREATED", "REVOKED", "MEMBER", "ID",
            ];
            out::data(&render::table(&heading, &keys))
        })
    }
}

fn row(key: &Value) -> Vec<String> {
    let texts = |name: &str| {
        let listed = rows(key, name).iter().filter_map(Value::as_str);
        render::safe(&listed.collect::<Vec<_>>().join(","))
    };
    let is_revoked = key["revoked"].as_bool() == Some(true);
    vec![
        cell(key, "label"),
        texts("capabilities"),
        texts("topics"),
        time(key, "created_at"),
        if is_revoked { "yes" } else { "-" }.to_owned(),
        cell(key, "member_id"),
        cell(key, "id"),
    ]
}
