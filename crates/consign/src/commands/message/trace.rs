//! `consign message trace NONCE`

use crate::commands::OutputArgs;
use crate::commands::beam::{OperatorLinkArgs, cell, member, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only operators may read traces: their addresses are in BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or
BEAM_VIEWER_EMAILS of the server. On the machine of the server --email begins a session; elsewhere
give the token of a session with --token-file. The nonce is printed by consign message send,
consign message history and consign message list.

Example:
  consign message trace 00000000-0000-4000-8000-000000000001 --email ops@example.com")]
pub(crate) struct Args {
    /// Nonce of the intent or message
    nonce: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: OperatorLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let trace = self.link.client().await?.beam_trace(&self.nonce).await?;
        if self.output.json {
            out::json(&trace)?;
            return Ok(Exit::Done);
        }
        let intent = &trace["intent"];
        out::data(&render::fields(&[
            ("nonce", member(intent, "nonce")),
            ("from", member(intent, "from")),
            ("to", member(intent, "to")),
            ("intent", member(intent, "intentType")),
            ("status", member(intent, "status")),
            ("error code", member(intent, "errorCode")),
        ]))?;
        let stages = rows(&trace, "stages").iter().map(|stage| {
            vec![
                cell(stage, "timestamp"),
                cell(stage, "stage"),
                cell(stage, "details"),
            ]
        });
        let stages: Vec<Vec<String>> = stages.collect();
        out::data(&render::table(&["TIME", "STAGE", "DETAILS"], &stages))?;
        Ok(Exit::Done)
    }
}
