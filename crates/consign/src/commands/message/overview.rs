//! `consign message overview`

use serde_json::Value;

use crate::commands::OutputArgs;
use crate::commands::beam::{OperatorLinkArgs, cell, member, note_truncated, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only operators may read figures: their addresses are in BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or
BEAM_VIEWER_EMAILS of the server. On the machine of the server --email begins a session; elsewhere
give the token of a session with --token-file. With --json there are the figures of each part of
the time as well.

Example:
  consign message overview --hours 24 --email ops@example.com")]
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
        let overview = client.beam_overview(Some(self.hours)).await?;
        if self.output.json {
            out::json(&overview)?;
            return Ok(Exit::Done);
        }
        let summary = &overview["summary"];
        out::data(&render::fields(&[
            ("hours", member(&overview, "windowHours")),
            ("agents", member(summary, "totalAgents")),
            ("live agents", member(summary, "liveAgents")),
            ("stale agents", member(summary, "staleAgents")),
            ("peers", member(summary, "federationPeers")),
            ("agents of peers", member(summary, "federatedAgents")),
            ("intents", member(summary, "totalIntents")),
            ("success", member(summary, "successCount")),
            ("error", member(summary, "errorCount")),
            ("in flight", member(summary, "inFlightCount")),
            (
                "in flight over 15 min",
                member(summary, "inFlightOlderThan15m"),
            ),
            ("success rate", member(summary, "successRate")),
            ("average ms", member(summary, "avgLatencyMs")),
            ("95th percentile ms", member(summary, "p95LatencyMs")),
        ]))?;
        let intents = ["intentType", "total", "errors", "avgLatencyMs"];
        list(
            &["INTENT", "TOTAL", "ERRORS", "AVERAGE MS"],
            rows(&overview, "topIntents"),
            &intents,
        )?;
        let errors = ["errorCode", "count", "lastSeenAt"];
        list(
            &["ERROR CODE", "COUNT", "LAST SEEN"],
            rows(&overview, "topErrors"),
            &errors,
        )?;
        let alerts = ["severity", "startedAt", "title", "message"];
        list(
            &["SEVERITY", "SINCE", "ALERT", "MESSAGE"],
            rows(&overview, "alerts"),
            &alerts,
        )?;
        note_truncated(&overview);
        Ok(Exit::Done)
    }
}

/// A table after an empty line; nothing if it has no rows.
pub(super) fn list(heading: &[&str], items: &[Value], members: &[&str]) -> anyhow::Result<()> {
    let row = |item: &Value| members.iter().map(|name| cell(item, name)).collect();
    let items: Vec<Vec<String>> = items.iter().map(row).collect();
    if items.is_empty() {
        return Ok(());
    }
    out::data(&format!("\n{}", render::table(heading, &items)))
}
