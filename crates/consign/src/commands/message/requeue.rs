//! `consign message requeue ID`

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, member};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The message is attempted at once, with its nonce.

Example:
  consign message requeue 8c2d0f6e5b7a4c1d9e3f2a1b0c4d6738")]
pub(crate) struct Args {
    /// Id of the message
    id: String,

    /// Show which message would be requeued, and send nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if self.dry_run {
            let id = render::safe(&self.id);
            out::note(&format!("would requeue message {id}; nothing was sent"));
            return Ok(Exit::Done);
        }
        let requeued = self.link.client()?.bus_requeue(&self.id).await?;
        if self.output.json {
            out::json(&requeued)?;
        } else {
            out::data(&render::fields(&[
                ("message id", member(&requeued, "message_id")),
                ("nonce", member(&requeued, "nonce")),
                ("status", member(&requeued, "status")),
                ("error", member(&requeued, "error")),
                ("error code", member(&requeued, "error_code")),
            ]))?;
        }
        let is_dead = requeued["status"] == "dead_letter";
        Ok(if is_dead { Exit::Failed } else { Exit::Done })
    }
}
