//! `consign mesh orphan-check`

use serde_json::json;

use super::OperatorArgs;
use crate::commands::beam::{cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  every id has its message, or says that the message is gone
  1  ids without a message were found

A repair only marks such ids as without history, so that a repeated message is still recognised.")]
pub(crate) struct Args {
    /// Mark what is found as without history
    #[arg(long)]
    repair: bool,

    /// With --repair: only check
    #[arg(long, requires = "repair")]
    dry_run: bool,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let body = json!({"repair": self.repair, "dry_run": self.dry_run});
        let client = self.operator.admin.client()?;
        let report = client.mesh_orphan_check(&body).await?;
        self.operator.print(&report, |report| {
            let orphans: Vec<Vec<String>> = rows(report, "orphans")
                .iter()
                .map(|orphan| vec![cell(orphan, "mesh_id"), cell(orphan, "client_message_id")])
                .collect();
            if !orphans.is_empty() {
                out::data(&render::table(&["MESH", "ID OF THE MESSAGE"], &orphans))?;
            }
            let count = |name| cell(report, name);
            out::note(&format!(
                "{} ids checked, {} without a message, {} repaired; {} deliveries without a message",
                count("checked"),
                count("found"),
                count("repaired"),
                count("deliveries_without_message"),
            ));
            Ok(())
        })?;
        let found = report["found"].as_u64().unwrap_or(0);
        Ok(if found == 0 { Exit::Done } else { Exit::Failed })
    }
}
