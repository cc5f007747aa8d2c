//! `consign node resume NODE`

use super::{called, find};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its id, or its name if no other has it
    #[arg(value_name = "NODE")]
    node: String,

    /// Show which node would serve again, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let mut node = find(&client.nodes().await?, &self.node)?.clone();
        if !self.dry_run {
            node = client.drain_node(node.id, false).await?;
        }
        if self.output.json {
            out::json(&node)?;
            return Ok(Exit::Done);
        }
        let called = called(&node);
        out::note(&if self.dry_run {
            format!("would let {called} give out work again; nothing was sent")
        } else {
            format!("{called} gives out work again within two seconds")
        });
        Ok(Exit::Done)
    }
}
