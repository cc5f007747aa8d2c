//! `consign agent show BEAM-ID`

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, member, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign agent show alice@acme.beam.directory")]
pub(crate) struct Args {
    /// Beam-ID of the agent
    beam_id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let agent = self.link.client()?.beam_agent(&self.beam_id).await?;
        if self.output.json {
            out::json(&agent)?;
            return Ok(Exit::Done);
        }
        let keys = &agent["keyState"];
        out::data(&render::fields(&[
            ("beam id", member(&agent, "beam_id")),
            ("name", member(&agent, "display_name")),
            ("capabilities", member(&agent, "capabilities")),
            ("description", member(&agent, "description")),
            ("visibility", member(&agent, "visibility")),
            ("trust", member(&agent, "trust_score")),
            ("created", member(&agent, "created_at")),
            ("last seen", member(&agent, "last_seen")),
            ("connected", member(&agent, "connected")),
            ("public key", member(&keys["active"], "publicKey")),
            (
                "revoked keys",
                Some(rows(keys, "revoked").len().to_string()),
            ),
        ]))?;
        Ok(Exit::Done)
    }
}
