//! `consign message poll BEAM-ID`

use consign_client::MessagePoll;

use super::STATES;
use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, rows, time_cell};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 3 means that there is no message. Polling changes nothing; acknowledge with: consign message ack

Example:
  consign message poll bob@acme.beam.directory --wait 20")]
pub(crate) struct Args {
    /// Beam-ID of the recipient
    agent: String,

    /// Status of the messages
    #[arg(long, default_value = "delivered", value_parser = STATES)]
    status: String,

    /// Only messages created after this time, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    since: Option<f64>,

    /// How many messages, at most 100
    #[arg(long, default_value_t = 10)]
    limit: u32,

    /// Wait up to this many seconds, at most 30, for a message
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=30))]
    wait: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let poll = MessagePoll {
            status: Some(self.status),
            since: self.since,
            limit: Some(self.limit),
            wait_s: self.wait,
        };
        let found = self.link.client()?.bus_poll(&self.agent, &poll).await?;
        let messages = rows(&found, "messages");
        let exit = if messages.is_empty() {
            Exit::Nothing
        } else {
            Exit::Done
        };
        if self.output.json {
            out::json(&found)?;
        } else if messages.is_empty() {
            out::note("no messages");
        } else {
            let messages = messages.iter().map(|message| {
                vec![
                    cell(message, "id"),
                    time_cell(message, "created_at"),
                    cell(message, "sender"),
                    cell(message, "intent"),
                    cell(message, "payload"),
                ]
            });
            let messages: Vec<Vec<String>> = messages.collect();
            let heading = ["ID", "CREATED", "SENDER", "INTENT", "PAYLOAD"];
            out::data(&render::table(&heading, &messages))?;
        }
        Ok(exit)
    }
}
