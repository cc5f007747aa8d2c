//! `consign message stats`

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, member};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Counts messages of the bus. Intents of the directory: consign message overview

Example:
  consign message stats")]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let stats = self.link.client()?.bus_stats().await?;
        if self.output.json {
            out::json(&stats)?;
            return Ok(Exit::Done);
        }
        out::data(&render::fields(&[
            ("messages", member(&stats, "total")),
            ("received", member(&stats, "received")),
            ("queued", member(&stats, "queued")),
            ("dispatched", member(&stats, "dispatched")),
            ("delivered", member(&stats, "delivered")),
            ("acked", member(&stats, "acked")),
            ("failed", member(&stats, "failed")),
            ("dead letters", member(&stats, "dead_letter")),
            ("last 24 hours", member(&stats, "last_24h")),
        ]))?;
        let agents = stats["by_agent"].as_object().into_iter().flatten();
        let agents = agents.map(|(agent, traffic)| {
            vec![
                render::safe(agent),
                cell(traffic, "sent"),
                cell(traffic, "received"),
            ]
        });
        let agents: Vec<Vec<String>> = agents.collect();
        if !agents.is_empty() {
            let table = render::table(&["AGENT", "SENT", "RECEIVED"], &agents);
            out::data(&format!("\n{table}"))?;
        }
        Ok(Exit::Done)
    }
}
