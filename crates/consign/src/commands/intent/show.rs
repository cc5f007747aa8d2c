//! `consign intent show ID`

use consign_client::{InspectedIntent, IntentResult, Timeline, TimelineEntry};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::EitherArgs;
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
    either: EitherArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.either.client()?;
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
            let inspected = match self.either.admin_client_if_any() {
                Some(admin) => admin.inspect(&self.id).await.ok(),
                None => None,
            };
            if self.output.json {
                out::json(&ShownIntent::new(&result, inspected.as_ref()))?;
            } else {
                out::data(&summary(&result, inspected.as_ref(), render::now()))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// The status and the result, and for an operator the rest of the row. The token of its lease is left out.
#[derive(Serialize)]
struct ShownIntent<'a> {
    #[serde(flatten)]
    result: &'a IntentResult,
    #[serde(flatten)]
    inspected: Option<InspectedFields<'a>>,
}

#[derive(Serialize)]
struct InspectedFields<'a> {
    payload: &'a RawValue,
    publisher: &'a str,
    claimed_by: Option<&'a str>,
    max_attempts: u32,
    backoff_base: f64,
    last_error: Option<&'a str>,
    created_at: f64,
    expires_at: Option<f64>,
    claimed_at: Option<f64>,
    failed_at: Option<f64>,
}

impl<'a> ShownIntent<'a> {
    fn new(result: &'a IntentResult, inspected: Option<&'a InspectedIntent>) -> Self {
        let inspected = inspected.map(|inspected| InspectedFields {
            payload: &inspected.payload,
            publisher: &inspected.publisher,
            claimed_by: inspected.claimed_by.as_deref(),
            max_attempts: inspected.max_attempts,
            backoff_base: inspected.backoff_base,
            last_error: inspected.last_error.as_deref(),
            created_at: inspected.created_at,
            expires_at: inspected.expires_at,
            claimed_at: inspected.claimed_at,
            failed_at: inspected.failed_at,
        });
        Self { result, inspected }
    }
}

fn summary(intent: &IntentResult, inspected: Option<&InspectedIntent>, now: f64) -> String {
    let at = |time: f64| {
        let (age, passed) = (render::age((now - time).abs()), time <= now);
        let age = if passed {
            format!("{age} ago")
        } else {
            format!("in {age}")
        };
        format!("{} ({age})", render::time(time))
    };
    let attempts = match inspected {
        Some(inspected) => format!("{} of {}", intent.claim_attempts, inspected.max_attempts),
        None => intent.claim_attempts.to_string(),
    };
    let of_row = |read: fn(&InspectedIntent) -> Option<f64>| inspected.and_then(read).map(at);
    let claimed_by = inspected.and_then(|inspected| inspected.claimed_by.as_deref());
    let error = inspected.and_then(|inspected| inspected.last_error.as_deref());
    let error = error.or(intent.error.as_deref());
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
        ("attempts", Some(attempts)),
        (
            "publisher",
            inspected.map(|inspected| render::safe(&inspected.publisher)),
        ),
        ("created", of_row(|row| Some(row.created_at))),
        ("expires", of_row(|row| row.expires_at)),
        ("run at", intent.run_at.map(render::time)),
        ("claimed by", claimed_by.map(render::safe)),
        ("claimed at", of_row(|row| row.claimed_at)),
        ("lease until", intent.claim_expires_at.map(render::time)),
        ("for worker", safe(&intent.target_worker)),
        ("needs", safe(&intent.required_capability)),
        ("worker", safe(&intent.worker)),
        ("completed at", intent.completed_at.map(render::time)),
        ("died", of_row(|row| row.failed_at)),
        (
            "payload",
            inspected.map(|row| render::safe(row.payload.get())),
        ),
        ("error", error.map(|error| render::block(error, 4))),
        ("result", result),
    ])
}

/// What one column shows of a fact.
type FactColumn = fn(&TimelineEntry) -> Option<String>;

/// A longer detail would push the table off the screen; with `--json` it is printed in full.
const DETAIL_CHARS_SHOWN: usize = 60;

pub(super) fn history(timeline: &Timeline) -> String {
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
            summary(&intent, None, 0.0),
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
