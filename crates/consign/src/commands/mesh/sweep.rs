//! `consign mesh sweep`

use serde_json::json;

use super::OperatorArgs;
use crate::commands::beam::cell;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server does the same every day, so this is for tests and for meshes that are short of space. A removal cannot
be undone.

Example:
  consign mesh sweep --as-of 2027-01-31T00:00:00Z --dry-run")]
pub(crate) struct Args {
    /// Remove what ends by this time instead of now
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,

    /// Show how much would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let mut body = json!({"dry_run": self.dry_run});
        if let Some(as_of) = &self.as_of {
            body["as_of"] = json!(as_of);
        }
        let swept = self.operator.admin.client()?.mesh_sweep(&body).await?;
        self.operator.print(&swept, |swept| {
            let messages = cell(swept, "messages_pruned");
            let ids = cell(swept, "dedupe_expired");
            out::note(&if self.dry_run {
                format!("would remove {messages} messages and {ids} ids; nothing was changed")
            } else {
                format!("removed {messages} messages and {ids} ids")
            });
            Ok(())
        })
    }
}
