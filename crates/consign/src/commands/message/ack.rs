//! `consign message ack ID`

use serde_json::{Value, json};

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell};
use crate::failure::Exit;
use crate::{input, out};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign message ack 8c2d0f6e5b7a4c1d9e3f2a1b0c4d6738 --response '{\"ok\":true}'
  consign message ack 8c2d0f6e5b7a4c1d9e3f2a1b0c4d6738 --failed")]
pub(crate) struct Args {
    /// Id of the message
    id: String,

    /// Report that the message failed
    #[arg(long)]
    failed: bool,

    /// JSON object for the sender; @FILE reads a file, - reads standard input
    #[arg(long, value_name = "JSON")]
    response: Option<String>,

    /// Print what would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let status = if self.failed { "failed" } else { "acked" };
        let mut body = json!({"message_id": self.id, "status": status});
        if let Some(response) = &self.response {
            let response = input::json("the response", response)?;
            body["response"] = serde_json::from_str::<Value>(response.get())?;
        }
        if self.dry_run {
            out::data(&body.to_string())?;
            out::note("nothing was sent");
            return Ok(Exit::Done);
        }
        let acked = self.link.client()?.bus_ack(&body).await?;
        if self.output.json {
            out::json(&acked)?;
        } else {
            let (id, status) = (cell(&acked, "message_id"), cell(&acked, "status"));
            out::note(&format!("message {id} is {status}"));
        }
        Ok(Exit::Done)
    }
}
