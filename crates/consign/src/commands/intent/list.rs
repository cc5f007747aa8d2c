//! `consign intent list`

use consign_client::{IntentStatus, ListFilter};
use consign_kernel::limits::PAGE_ITEMS_MAX;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{out, render};

/// A longer goal would push the other columns off the screen; `show` prints it in full.
const GOAL_CHARS_SHOWN: usize = 40;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only intents that are open, claimed, fulfilled or dead
    #[arg(long, value_parser = ["open", "claimed", "fulfilled", "dead"])]
    status: Option<String>,

    /// Only this namespace
    #[arg(long, short)]
    namespace: Option<String>,

    /// Only this goal
    #[arg(long)]
    goal: Option<String>,

    /// Maximum number, up to 100
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_ITEMS_MAX)),
    )]
    limit: Option<u32>,

    /// Continue after the last page
    #[arg(long)]
    cursor: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client()?;
        let page = client
            .list(&ListFilter {
                status: self.status,
                namespace: self.namespace,
                goal: self.goal,
                limit: self.limit,
                cursor: self.cursor,
            })
            .await?;
        if self.output.json {
            out::json(&page)?;
            return Ok(Exit::Done);
        }
        if page.intents.is_empty() {
            out::note("no intents");
        } else {
            out::data(&human(&page.intents))?;
        }
        if let Some(cursor) = page.cursor {
            out::note(&format!(
                "there are more: add --cursor {}",
                render::safe(&cursor)
            ));
        }
        Ok(Exit::Done)
    }
}

fn human(intents: &[IntentStatus]) -> String {
    let mut rows: Vec<Vec<String>> = intents
        .iter()
        .map(|intent| {
            vec![
                intent.id.clone(),
                intent.status.clone(),
                intent.claim_attempts.to_string(),
                intent.priority.to_string(),
                intent.run_at.map_or_else(|| "-".to_owned(), render::time),
                intent.namespace.clone(),
                shortened(&render::safe(&intent.goal)),
            ]
        })
        .collect();
    let mut heading = vec![
        "ID",
        "STATUS",
        "TRIES",
        "PRIORITY",
        "RUN AT",
        "NAMESPACE",
        "GOAL",
    ];
    if intents.iter().any(|intent| intent.worker.is_some()) {
        heading.push("WORKER");
        for (row, intent) in rows.iter_mut().zip(intents) {
            let worker = intent.worker.as_deref().map(render::safe);
            row.push(worker.unwrap_or_else(|| "-".to_owned()));
        }
    }
    render::table(&heading, &rows)
}

fn shortened(goal: &str) -> String {
    if goal.chars().count() <= GOAL_CHARS_SHOWN {
        return goal.to_owned();
    }
    let start: String = goal.chars().take(GOAL_CHARS_SHOWN - 3).collect();
    format!("{start}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_with_short_goals() {
        let goal = "g".repeat(50);
        let json = format!(
            r#"[{{"id":"a1","status":"open","namespace":"default","goal":"{goal}","priority":100,"run_at":1700000000.0}}]"#
        );
        let intents: Vec<IntentStatus> = serde_json::from_str(&json).unwrap();
        assert_eq!(
            human(&intents),
            format!(
                "ID  STATUS  TRIES  PRIORITY  RUN AT                NAMESPACE  GOAL\n\
                 a1  open    0      100       2023-11-14T22:13:20Z  default    {}...\n",
                "g".repeat(37)
            )
        );
    }

    #[test]
    fn a_list_names_the_workers_if_there_are_any() {
        let json = r#"[{"id":"a1","status":"open","goal":"g"},{"id":"a2","status":"dead","goal":"g","worker":"w-7"}]"#;
        let intents: Vec<IntentStatus> = serde_json::from_str(json).unwrap();
        let shown = human(&intents);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("GOAL  WORKER"), "{shown}");
        assert!(
            lines[1].ends_with("g     -") && lines[2].ends_with("g     w-7"),
            "{shown}"
        );
    }
}
