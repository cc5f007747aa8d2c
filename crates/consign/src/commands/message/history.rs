//! `consign message history`

use consign_client::MessageSearch;

use super::STATES;
use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, rows, time_cell};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign message history --status dead_letter --limit 20")]
pub(crate) struct Args {
    /// Only messages of this sender
    #[arg(long, value_name = "BEAM-ID")]
    sender: Option<String>,

    /// Only messages to this recipient
    #[arg(long, value_name = "BEAM-ID")]
    recipient: Option<String>,

    /// Only messages with this intent
    #[arg(long)]
    intent: Option<String>,

    /// Only messages with this status
    #[arg(long, value_parser = STATES)]
    status: Option<String>,

    /// Only messages created at or after this time, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    since: Option<f64>,

    /// Only messages created at or before this time, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,

    /// How many messages, at most 500
    #[arg(long, default_value_t = 50)]
    limit: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let search = MessageSearch {
            sender: self.sender,
            recipient: self.recipient,
            intent: self.intent,
            status: self.status,
            since: self.since,
            until: self.until,
            limit: Some(self.limit),
        };
        let found = self.link.client()?.bus_history(&search).await?;
        if self.output.json {
            out::json(&found)?;
            return Ok(Exit::Done);
        }
        let messages = rows(&found, "messages").iter().map(|message| {
            vec![
                cell(message, "id"),
                cell(message, "status"),
                cell(message, "retry_count"),
                time_cell(message, "created_at"),
                cell(message, "sender"),
                cell(message, "recipient"),
                cell(message, "intent"),
                cell(message, "nonce"),
                cell(message, "error"),
            ]
        });
        let messages: Vec<Vec<String>> = messages.collect();
        if messages.is_empty() {
            out::note("no messages");
        } else {
            let heading = [
                "ID",
                "STATUS",
                "RETRIES",
                "CREATED",
                "SENDER",
                "RECIPIENT",
                "INTENT",
                "NONCE",
                "ERROR",
            ];
            out::data(&render::table(&heading, &messages))?;
        }
        Ok(Exit::Done)
    }
}
