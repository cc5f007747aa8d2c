//! `consign events`: what happens to the rows of all owners and faces, one line each.

use std::fmt::Write as _;

use consign_client::StreamEvent;
use serde_json::Value;

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

const AFTER_HELP: &str = "\
Follows from now on; with --after from an earlier event, 0 for the oldest stored one. The
number of an event is its `seq`. The connection is made again when it breaks.

Examples:
  consign events --face intent --goal mail.send
  consign events --after 0 --json | jq -c 'select(.to == \"dead_letter\")'";

/// A break that lasts longer is reported.
const RETRIES_MAX: u32 = 30;
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AllEventsArgs {
    /// Only rows of this face
    #[arg(long, value_name = "FACE", value_parser = ["intent", "automation", "transaction", "mesh", "beam"])]
    face: Option<String>,

    /// Only rows of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only rows with this goal
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,

    /// Begin after the event with this number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,

    /// End after so many events
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl AllEventsArgs {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let query = [
            ("face", self.face.as_deref()),
            ("goal", self.goal.as_deref()),
            ("namespace", self.namespace.as_deref()),
        ];
        let mut last = self.after.map(|after| after.to_string());
        let (mut shown, mut failed) = (0, 0);
        loop {
            let ended = match client.all_events(&query, last.as_deref()).await {
                Ok(mut events) => loop {
                    match events.next().await {
                        Ok(Some(event)) => {
                            failed = 0;
                            last = event.id.clone().or(last);
                            shown += u64::from(self.show(&event)?);
                            if self.limit.is_some_and(|limit| shown >= limit) {
                                return Ok(Exit::Done);
                            }
                        }
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                },
                // The first connection must succeed, and a refusal does not change by itself.
                Err(error) if failed == 0 && shown == 0 || error.status().is_some() => {
                    return Err(error.into());
                }
                Err(error) => Some(error),
            };
            failed += 1;
            if failed > RETRIES_MAX {
                let why = ended.map_or_else(|| "the stream ended".to_owned(), |it| it.to_string());
                let hint = format!("go on with --after {}", last.unwrap_or_default());
                return Err(Failure::new(Exit::Unreachable, why).hint(hint).into());
            }
            if failed == 1 {
                out::note("the stream ended; connecting again");
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Whether the event was one that is shown.
    fn show(&self, event: &StreamEvent) -> anyhow::Result<bool> {
        if event.data.is_empty() {
            return Ok(false);
        }
        if self.output.json {
            out::data(&event.data)?;
        } else {
            let fact: Value = serde_json::from_str(&event.data)?;
            out::data(&line(&fact))?;
        }
        Ok(true)
    }
}

/// One line for people: when, what, to which row, by whom, why.
pub(super) fn line(fact: &Value) -> String {
    let text = |key: &str| fact[key].as_str().map(render::safe);
    let shown = |key: &str| text(key).unwrap_or_default();
    let mut line = format!(
        "{}  {:11} {:9} {} {}/{}",
        render::time(fact["at"].as_f64().unwrap_or_default()),
        shown("face"),
        shown("verb"),
        shown("intent"),
        shown("namespace"),
        shown("goal"),
    );
    let to = match text("from") {
        Some(from) if from != shown("to") => format!("  {from} -> {}", shown("to")),
        _ => format!("  {}", shown("to")),
    };
    line.push_str(&to);
    if let Some(actor) = text("actor") {
        let _ = write!(line, "  by {actor}");
    }
    if let Some(detail) = fact["detail"].as_str() {
        let _ = write!(line, "  {}", render::summary(detail, 80));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_that_cannot_steer_the_terminal() {
        let fact = json!({
            "seq": 4, "at": 1_700_000_000.5, "face": "intent", "verb": "failed", "from": "dispatched",
            "to": "queued", "actor": "main", "detail": "no\u{1b}[2J paper\nline 2", "intent": "a1",
            "namespace": "default", "goal": "print",
        });
        assert_eq!(
            line(&fact),
            "2023-11-14T22:13:20Z  intent      failed    a1 default/print  dispatched -> queued  by main  no\\u{1b}[2J paper"
        );
    }
}
