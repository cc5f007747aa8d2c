//! `consign intent show ID`

use consign_client::{IntentResult, Timeline, TimelineEntry};
use serde_json::Value;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    id: String,

    /// Show its timeline instead
    #[arg(long, conflicts_with = "receipt")]
    timeline: bool,

    /// The signed receipt instead, exactly as the server keeps it
    #[arg(long)]
    receipt: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client()?;
        if self.receipt {
            // It is JSON already, and the signature covers its bytes.
            out::data(&client.receipt(&self.id).await?)?;
        } else if self.timeline {
            let timeline = client.timeline(&self.id).await?;
            if self.output.json {
                out::json(&timeline)?;
            } else {
                out::data(&history(&timeline))?;
            }
        } else {
            let result = client.result(&self.id).await?;
            if self.output.json {
                out::json(&result)?;
            } else {
                out::data(&summary(&result))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn summary(intent: &IntentResult) -> String {
    let safe = |text: &Option<String>| text.as_deref().map(render::safe);
    let result = intent
        .result
        .as_deref()
        .map(|result| render::safe(result.get()));
    render::fields(&[
        ("id", Some(intent.id.clone())),
        ("status", Some(intent.status.clone())),
        ("goal", Some(render::safe(&intent.goal))),
        ("namespace", Some(intent.namespace.clone())),
        ("visibility", Some(intent.visibility.clone())),
        ("priority", Some(intent.priority.to_string())),
        ("attempts", Some(intent.claim_attempts.to_string())),
        ("run at", intent.run_at.map(render::time)),
        ("lease until", intent.claim_expires_at.map(render::time)),
        ("for worker", safe(&intent.target_worker)),
        ("needs", safe(&intent.required_capability)),
        ("worker", safe(&intent.worker)),
        ("completed at", intent.completed_at.map(render::time)),
        (
            "error",
            intent.error.as_deref().map(|error| render::block(error, 2)),
        ),
        ("result", result),
    ])
}

/// What one column shows of a fact.
type FactColumn = fn(&TimelineEntry) -> Option<String>;

/// A longer detail would push the table off the screen; with `--json` it is printed in full.
const DETAIL_CHARS_SHOWN: usize = 60;

fn history(timeline: &Timeline) -> String {
    let mut rows: Vec<Vec<String>> = timeline.facts.iter().map(row).collect();
    let mut heading = vec![
        "SEQ", "AT", "VERB", "FROM", "TO", "CAUSE", "ATTEMPT", "ACTOR",
    ];
    // Most histories have neither.
    let more: [(&'static str, FactColumn); 2] = [
        ("WORKER", |fact| fact.worker.as_deref().map(render::safe)),
        ("DETAIL", |fact| {
            let text = fact.detail.as_str()?;
            Some(render::summary(text, DETAIL_CHARS_SHOWN))
        }),
    ];
    for (title, text) in more {
        let texts: Vec<_> = timeline.facts.iter().map(text).collect();
        if texts.iter().any(Option::is_some) {
            heading.push(title);
            for (row, text) in rows.iter_mut().zip(texts) {
                row.push(text.unwrap_or_else(|| "-".to_owned()));
            }
        }
    }
    render::table(&heading, &rows)
}

fn row(fact: &TimelineEntry) -> Vec<String> {
    let word = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), render::safe);
    let at = match &fact.at {
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), render::time),
        Value::String(text) => render::safe(text),
        other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    vec![
        fact.seq.to_string(),
        at,
        render::safe(&fact.verb),
        word(&fact.from),
        word(&fact.to),
        word(&fact.cause),
        fact.attempt
            .map_or_else(|| "-".to_owned(), |attempt| attempt.to_string()),
        word(&fact.actor),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_reads_as_fields_without_the_empty_ones() {
        let json = r#"{"id":"a1","status":"fulfilled","goal":"send","namespace":"default","visibility":"private",
            "priority":100,"claim_attempts":1,"run_at":1700000000.0,"completed_at":1700000060.5,"result":{"ok":true}}"#;
        let intent: IntentResult = serde_json::from_str(json).unwrap();
        assert_eq!(
            summary(&intent),
            "id            a1\n\
             status        fulfilled\n\
             goal          send\n\
             namespace     default\n\
             visibility    private\n\
             priority      100\n\
             attempts      1\n\
             run at        2023-11-14T22:13:20Z\n\
             completed at  2023-11-14T22:14:20Z\n\
             result        {\"ok\":true}\n"
        );
    }

    #[test]
    fn a_history_reads_as_a_table() {
        let json = r#"{"id":"a1","facts":[
            {"seq":7,"at":1700000000,"verb":"admit","from":null,"to":"open","cause":null,"attempt":0,"actor":"k1","detail":null},
            {"seq":9,"at":1700000001.5,"verb":"claim","from":"open","to":"claimed","cause":null,"attempt":1,"actor":"w"}]}"#;
        let timeline: Timeline = serde_json::from_str(json).unwrap();
        assert_eq!(
            history(&timeline),
            "SEQ  AT                    VERB   FROM  TO       CAUSE  ATTEMPT  ACTOR\n\
             7    2023-11-14T22:13:20Z  admit  -     open     -      0        k1\n\
             9    2023-11-14T22:13:21Z  claim  open  claimed  -      1        w\n"
        );
    }

    #[test]
    fn a_history_has_columns_for_workers_and_details_if_there_are_any() {
        let json = r#"{"id":"a1","facts":[
            {"seq":7,"at":1700000000,"verb":"admit","to":"open","attempt":0,"actor":"k1"},
            {"seq":9,"at":1700000001,"verb":"fail","from":"claimed","to":"open","attempt":1,"actor":"k1","worker":"w-7",
             "detail":"Traceback (most recent call last):\n  x\nKeyError: 'a'"}]}"#;
        let timeline: Timeline = serde_json::from_str(json).unwrap();
        let shown = history(&timeline);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("ACTOR  WORKER  DETAIL"), "{shown}");
        assert!(lines[1].ends_with("k1     -       -"), "{shown}");
        assert!(
            lines[2].ends_with("k1     w-7     KeyError: 'a'"),
            "{shown}"
        );
    }
}
