//! `consign message errors`

use super::overview::list;
use crate::commands::OutputArgs;
use crate::commands::beam::{OperatorLinkArgs, member, note_truncated, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only operators may read figures: their addresses are in BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or
BEAM_VIEWER_EMAILS of the server. On the machine of the server --email begins a session; elsewhere
give the token of a session with --token-file. The intents with an error code are listed by
consign message list --error-code CODE.

Example:
  consign message errors --hours 24 --email ops@example.com")]
pub(crate) struct Args {
    /// How many last hours, at most 2160
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=2160))]
    hours: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: OperatorLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client().await?;
        let report = client.beam_errors(Some(self.hours)).await?;
        if self.output.json {
            out::json(&report)?;
            return Ok(Exit::Done);
        }
        let summary = &report["summary"];
        out::data(&render::fields(&[
            ("hours", member(&report, "windowHours")),
            ("errors", member(summary, "totalErrors")),
            ("error codes", member(summary, "distinctErrorCodes")),
            ("timeout", member(summary, "timeoutCount")),
            ("offline", member(summary, "offlineCount")),
            ("delivery failed", member(summary, "deliveryFailedCount")),
        ]))?;
        let codes = [
            "errorCode",
            "count",
            "lastSeenAt",
            "avgLatencyMs",
            "affectedSenders",
            "affectedRecipients",
        ];
        let heading = [
            "ERROR CODE",
            "COUNT",
            "LAST SEEN",
            "AVERAGE MS",
            "SENDERS",
            "RECIPIENTS",
        ];
        list(&heading, rows(&report, "codes"), &codes)?;
        let routes = rows(&report, "routes");
        list(&["ROUTE", "COUNT"], routes, &["route", "count"])?;
        note_truncated(&report);
        Ok(Exit::Done)
    }
}
