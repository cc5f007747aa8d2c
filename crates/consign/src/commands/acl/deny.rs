//! `consign acl deny TARGET INTENT FROM`

use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, rows};
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What no rule allows is denied, so this removes the rule that has exactly these parts.

Example:
  consign acl deny bob@acme.beam.directory agent.ping alice@acme.beam.directory")]
pub(crate) struct Args {
    /// Beam-ID of the agent that receives
    target: String,

    /// Type of the intent
    intent: String,

    /// Sender or pattern of the rule, as `acl list` prints it
    from: String,

    /// Show which rule would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client()?;
        let found = client.beam_rules(&self.target).await?;
        let mut rules = rows(&found, "acl").iter();
        let rule = rules.find(|rule| {
            rule["intent_type"] == self.intent.as_str()
                && rule["allowed_from"] == self.from.as_str()
        });
        let shown = format!("{} from {} to {}", self.intent, self.from, self.target);
        let shown = render::safe(&shown);
        let Some(id) = rule.and_then(|rule| rule["id"].as_u64()) else {
            let message = format!("no rule allows {shown}; nothing was removed");
            let hint = "list the rules with: consign acl list";
            return Err(Failure::new(Exit::Nothing, message).hint(hint).into());
        };
        if !self.dry_run {
            client.beam_remove_rule(id).await?;
        }
        if self.output.json {
            out::json(&json!({"removed": !self.dry_run, "id": id}))?;
        } else if self.dry_run {
            out::note(&format!(
                "would remove rule {id}: {shown}; nothing was changed"
            ));
        } else {
            out::note(&format!("removed rule {id}: {shown}"));
        }
        Ok(Exit::Done)
    }
}
