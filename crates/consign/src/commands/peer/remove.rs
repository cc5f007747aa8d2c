//! `consign peer remove URL`

use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::beam::BeamLinkArgs;
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign peer remove https://peer.example --yes")]
pub(crate) struct Args {
    /// URL of the directory
    url: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let url = render::safe(&self.url);
        if !self.dry_run {
            confirm(&format!("remove the directory {url}?"), self.yes)?;
            self.link.client()?.beam_remove_peer(&self.url).await?;
        }
        if self.output.json {
            out::json(&json!({"removed": !self.dry_run, "directory_url": self.url}))?;
        } else if self.dry_run {
            out::note(&format!("would remove {url}; nothing was sent"));
        } else {
            out::note(&format!("{url} is removed"));
        }
        Ok(Exit::Done)
    }
}
