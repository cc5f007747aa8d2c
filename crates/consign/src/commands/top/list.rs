//! The rows behind a line of the view.

use std::time::{Duration, Instant};

use consign_client::{Client, Events};
use serde_json::Value;

use crate::{figures, render};

/// Which rows are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WantedRows {
    /// The last events of a face, and of a goal if one is named, newest first.
    Recent {
        face: String,
        namespace: Option<String>,
        goal: Option<String>,
    },
    DeadLetters,
}

impl WantedRows {
    pub(super) fn title(&self) -> String {
        match self {
            Self::DeadLetters => "dead letters of intents, newest first".to_owned(),
            Self::Recent {
                face,
                namespace: Some(namespace),
                goal: Some(goal),
            } => render::safe(&format!("what happens to {face} {namespace}/{goal}")),
            Self::Recent { face, .. } => render::safe(&format!("what happens in {face}")),
        }
    }
}

/// How long the next event is waited for, and all of them.
const WAIT: Duration = Duration::from_millis(400);
const WAIT_ALL: Duration = Duration::from_secs(3);
/// How many of the last events, of all faces, are searched, and how many are shown.
const SEARCHED: u64 = 20_000;
const ROWS_MAX: usize = 500;

/// The rows as lines.
pub(super) async fn fetch(
    client: &Client,
    wanted: WantedRows,
    last_fact: u64,
) -> anyhow::Result<Vec<String>> {
    match wanted {
        WantedRows::DeadLetters => {
            let dead = client.newest_dead_letters().await?;
            Ok(dead.iter().map(dead_line).collect())
        }
        WantedRows::Recent {
            face,
            namespace,
            goal,
        } => {
            let query = [
                ("face", Some(face.as_str())),
                ("goal", goal.as_deref()),
                ("namespace", namespace.as_deref()),
            ];
            let after = last_fact.saturating_sub(SEARCHED).to_string();
            let events = client.all_events(&query, Some(&after)).await?;
            let mut lines = recent(events).await;
            lines.reverse();
            Ok(lines)
        }
    }
}

/// The last events that arrive before the stream pauses.
async fn recent(mut events: Events) -> Vec<String> {
    let mut lines = Vec::new();
    let began_at = Instant::now();
    while began_at.elapsed() < WAIT_ALL
        && let Ok(Ok(Some(event))) = tokio::time::timeout(WAIT, events.next()).await
    {
        if let Ok(fact) = serde_json::from_str::<Value>(&event.data) {
            lines.push(super::super::events::line(&fact));
        }
        if lines.len() > ROWS_MAX {
            lines.remove(0);
        }
    }
    lines
}

fn dead_line(dead: &Value) -> String {
    let text = |key: &str| render::safe(dead[key].as_str().unwrap_or_default());
    let reason = render::summary(dead["reason"].as_str().unwrap_or_default(), 60);
    let at = render::time(dead["created_at"].as_f64().unwrap_or_default());
    format!(
        "{at}  {}  {}/{}  {} tries  {reason}",
        text("intent_id"),
        text("namespace"),
        text("goal"),
        figures::count(&dead["attempts"])
    )
}
