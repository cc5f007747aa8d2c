//! `consign agent list`

use consign_client::AgentSearch;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign agent list --org acme --capability quote")]
pub(crate) struct Args {
    /// Only agents of this organisation; `personal` for those without one
    #[arg(long)]
    org: Option<String>,

    /// Only agents with this capability; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,

    /// Only agents whose id, name or description contains this text
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// How many agents
    #[arg(long, default_value_t = 100)]
    limit: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let search = AgentSearch {
            org: self.org,
            capabilities: (!self.capabilities.is_empty()).then(|| self.capabilities.join(",")),
            text: self.query,
            limit: Some(self.limit),
        };
        let found = self.link.client()?.beam_agents(&search).await?;
        if self.output.json {
            out::json(&found)?;
            return Ok(Exit::Done);
        }
        let agents = rows(&found, "agents").iter().map(|agent| {
            vec![
                cell(agent, "beam_id"),
                cell(agent, "trust_score"),
                cell(agent, "last_seen"),
                cell(agent, "display_name"),
            ]
        });
        let agents: Vec<Vec<String>> = agents.collect();
        if agents.is_empty() {
            out::note("no agents");
        } else {
            out::data(&render::table(
                &["BEAM ID", "TRUST", "LAST SEEN", "NAME"],
                &agents,
            ))?;
        }
        Ok(Exit::Done)
    }
}
