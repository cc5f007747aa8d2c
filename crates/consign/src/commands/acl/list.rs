//! `consign acl list TARGET`

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign acl list bob@acme.beam.directory")]
pub(crate) struct Args {
    /// Beam-ID of the agent that receives
    target: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let found = self.link.client()?.beam_rules(&self.target).await?;
        if self.output.json {
            out::json(&found)?;
            return Ok(Exit::Done);
        }
        let rules = rows(&found, "acl").iter().map(|rule| {
            vec![
                cell(rule, "id"),
                cell(rule, "intent_type"),
                cell(rule, "allowed_from"),
                cell(rule, "created_at"),
            ]
        });
        let rules: Vec<Vec<String>> = rules.collect();
        if rules.is_empty() {
            out::note("no rules: every sender is refused");
        } else {
            out::data(&render::table(&["ID", "INTENT", "FROM", "CREATED"], &rules))?;
        }
        Ok(Exit::Done)
    }
}
