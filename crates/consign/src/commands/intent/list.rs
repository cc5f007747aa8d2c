//! `consign intent list`

use consign_client::{IntentStatus, ListFilter};
use consign_kernel::ids::IntentId;
use consign_kernel::limits::PAGE_ITEMS_MAX;

use super::found;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::EitherArgs;
use crate::{out, render};

/// A longer text would push the other columns off the screen; `show` prints it in full.
const GOAL_CHARS_SHOWN: usize = 40;
const ERROR_CHARS_SHOWN: usize = 32;
const FOUND_MAX: u32 = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Find rows of all keys and protocols, see below; needs the admin token
    #[arg(
        long,
        short,
        value_name = "FILTER",
        conflicts_with_all = ["status", "namespace", "goal"],
    )]
    filter: Option<String>,

    /// Only intents that are open, claimed, fulfilled or dead
    #[arg(long, value_parser = ["open", "claimed", "fulfilled", "dead"])]
    status: Option<String>,

    /// Only this namespace
    #[arg(long, short)]
    namespace: Option<String>,

    /// Only this goal
    #[arg(long)]
    goal: Option<String>,

    /// Maximum number: up to 100, or with a filter up to 10000 [default: 100]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(FOUND_MAX)),
    )]
    limit: Option<u32>,

    /// Continue after the last page
    #[arg(long)]
    cursor: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    either: EitherArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let cursor = match &self.filter {
            Some(filter) => self.find(filter).await?,
            None => self.list_own().await?,
        };
        if let (Some(cursor), false) = (cursor, self.output.json) {
            let cursor = render::safe(&cursor);
            out::note(&format!("there are more: add --cursor {cursor}"));
        }
        Ok(Exit::Done)
    }

    async fn find(&self, filter: &str) -> anyhow::Result<Option<String>> {
        found::check(filter)?;
        let client = self.either.admin_client()?;
        let limit = self.limit.unwrap_or(PAGE_ITEMS_MAX);
        let page = found::search(&client, filter, limit, self.cursor.clone()).await?;
        if self.output.json {
            out::json(&page)?;
        } else if page.intents.is_empty() {
            out::note(&format!(
                "nothing matches; {} rows were examined",
                page.examined
            ));
        } else {
            out::data(&found::table(&page.intents))?;
        }
        Ok(page.cursor)
    }

    async fn list_own(&self) -> anyhow::Result<Option<String>> {
        let client = self.either.client()?;
        let page = client
            .list(&ListFilter {
                status: self.status.clone(),
                namespace: self.namespace.clone(),
                goal: self.goal.clone(),
                limit: self.limit.map(|limit| limit.min(PAGE_ITEMS_MAX)),
                cursor: self.cursor.clone(),
            })
            .await?;
        if self.output.json {
            out::json(&page)?;
        } else if page.intents.is_empty() {
            out::note(
                "no intents of this key; with --filter '' an operator lists those of all keys",
            );
        } else {
            out::data(&human(&page.intents, render::now()))?;
        }
        Ok(page.cursor)
    }
}

fn human(intents: &[IntentStatus], now: f64) -> String {
    let mut rows: Vec<Vec<String>> = intents
        .iter()
        .map(|intent| {
            let error = intent.last_error.as_deref().unwrap_or("-");
            vec![
                intent.id.clone(),
                intent.status.clone(),
                born(&intent.id).map_or_else(|| "-".to_owned(), |at| render::age(now - at)),
                intent.claim_attempts.to_string(),
                intent.namespace.clone(),
                render::summary(&intent.goal, GOAL_CHARS_SHOWN),
                render::summary(error, ERROR_CHARS_SHOWN),
            ]
        })
        .collect();
    let mut heading = vec![
        "ID",
        "STATE",
        "AGE",
        "ATTEMPTS",
        "NAMESPACE",
        "GOAL",
        "ERROR",
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

/// When an intent was published: its id begins with that time, in milliseconds.
fn born(id: &str) -> Option<f64> {
    let id: IntentId = id.parse().ok()?;
    let mut ms = [0; 8];
    ms[2..].copy_from_slice(&id.0[..6]);
    let ms = i64::try_from(u64::from_be_bytes(ms)).ok()?;
    Some(consign_kernel::ids::Micros(ms.saturating_mul(1_000)).seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_with_age_and_error() {
        let goal = "g".repeat(50);
        let json = format!(
            r#"[{{"id":"018bcfe5680070008000000000000000","status":"open","namespace":"default","goal":"{goal}","priority":100,
                "claim_attempts":1,"last_error":"smtp down","run_at":1700000000.0}}]"#
        );
        let intents: Vec<IntentStatus> = serde_json::from_str(&json).unwrap();
        assert_eq!(
            human(&intents, 1_700_000_090.0),
            format!(
                "ID                                STATE  AGE  ATTEMPTS  NAMESPACE  GOAL{:38}ERROR\n\
                 018bcfe5680070008000000000000000  open   1m   1         default    {}…  smtp down\n",
                "",
                "g".repeat(39)
            )
        );
    }

    #[test]
    fn a_list_names_the_workers_if_there_are_any() {
        let json = r#"[{"id":"a1","status":"open","goal":"g"},{"id":"a2","status":"dead","goal":"g","worker":"w-7"}]"#;
        let intents: Vec<IntentStatus> = serde_json::from_str(json).unwrap();
        let shown = human(&intents, 0.0);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("ERROR  WORKER"), "{shown}");
        assert!(
            lines[1].ends_with("-      -") && lines[2].ends_with("-      w-7"),
            "{shown}"
        );
    }
}
