//! `consign message list`

use consign_client::BeamIntentSearch;

use super::STATES;
use crate::commands::OutputArgs;
use crate::commands::beam::{OperatorLinkArgs, cell, note_truncated, rows};
use crate::failure::Exit;
use crate::{out, render};

/// The words for the end of an intent, besides [`STATES`].
const OUTCOMES: [&str; 3] = ["success", "error", "in_flight"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only operators may list intents: their addresses are in BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or
BEAM_VIEWER_EMAILS of the server. On the machine of the server --email begins a session; elsewhere
give the token of a session with --token-file. Messages of the bus: consign message history

Example:
  consign message list --status failed --hours 24 --email ops@example.com")]
pub(crate) struct Args {
    /// Only intents of this sender
    #[arg(long, value_name = "BEAM-ID")]
    sender: Option<String>,

    /// Only intents to this recipient
    #[arg(long, value_name = "BEAM-ID")]
    recipient: Option<String>,

    /// Only this intent
    #[arg(long)]
    intent: Option<String>,

    /// Only intents in this state, or with this outcome
    #[arg(long, value_parser = STATES.into_iter().chain(OUTCOMES).collect::<Vec<_>>())]
    status: Option<String>,

    /// Only intents that ended with this error code
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,

    /// Only intents with this text in their nonce, parties, intent or error code
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// Only intents of so many last hours, at most 2160
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2160))]
    hours: Option<u32>,

    /// How many intents, at most 500
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: OperatorLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client().await?;
        let search = BeamIntentSearch {
            text: self.query,
            from: self.sender,
            to: self.recipient,
            intent: self.intent,
            status: self.status,
            error_code: self.error_code,
            hours: self.hours,
            limit: Some(self.limit),
        };
        let found = client.beam_intents(&search).await?;
        if self.output.json {
            out::json(&found)?;
            return Ok(Exit::Done);
        }
        let intents = rows(&found, "intents").iter().map(|intent| {
            vec![
                cell(intent, "nonce"),
                cell(intent, "status"),
                cell(intent, "timestamp"),
                cell(intent, "from"),
                cell(intent, "to"),
                cell(intent, "intentType"),
                cell(intent, "roundTripLatencyMs"),
                cell(intent, "errorCode"),
            ]
        });
        let intents: Vec<Vec<String>> = intents.collect();
        if intents.is_empty() {
            out::note("no intents");
        } else {
            let heading = [
                "NONCE",
                "STATUS",
                "SENT",
                "SENDER",
                "RECIPIENT",
                "INTENT",
                "MS",
                "ERROR CODE",
            ];
            out::data(&render::table(&heading, &intents))?;
        }
        let shown = intents.len();
        let total = found["total"].as_u64().unwrap_or_default();
        if total > u64::try_from(shown).unwrap_or(u64::MAX) {
            out::note(&format!("{shown} of {total} intents; more with --limit"));
        }
        note_truncated(&found);
        Ok(Exit::Done)
    }
}
