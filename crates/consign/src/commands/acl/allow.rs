//! `consign acl allow TARGET INTENT FROM`

use consign_beam::acl;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell};
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign acl allow bob@acme.beam.directory agent.ping alice@acme.beam.directory
  consign acl allow bob@acme.beam.directory agent.ping '*@acme.beam.directory'")]
pub(crate) struct Args {
    /// Beam-ID of the agent that receives
    target: String,

    /// Type of the intent
    intent: String,

    /// Beam-ID of the sender, a pattern such as *@acme.beam.directory, or * for all
    from: String,

    /// Show the rule, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        check_sender(&self.from)?;
        let rule = format!("{} from {} to {}", self.intent, self.from, self.target);
        let rule = render::safe(&rule);
        if self.dry_run {
            out::note(&format!("would allow {rule}; nothing was sent"));
            return Ok(Exit::Done);
        }
        let client = self.link.client()?;
        let added = client
            .beam_allow(&self.target, &self.intent, &self.from)
            .await?;
        if self.output.json {
            out::json(&added)?;
        } else {
            out::note(&format!("rule {} allows {rule}", cell(&added, "id")));
        }
        Ok(Exit::Done)
    }
}

/// The server keeps any text, but a sender that is neither an id nor a pattern matches nothing.
fn check_sender(from: &str) -> Result<(), Failure> {
    if acl::is_sender_or_pattern(from) {
        return Ok(());
    }
    Err(
        Failure::usage(format!("{from:?} matches no sender")).hint(
            "use a Beam-ID, a pattern such as '*@acme.beam.directory' or '*.beam.directory', or '*' for all",
        ),
    )
}
