//! `consign dead list`

use consign_client::{DeadLetter, SearchRequest};
use consign_kernel::limits::PAGE_ITEMS_MAX;

use crate::commands::OutputArgs;
use crate::commands::intent::check_filter;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

const GOAL_CHARS_SHOWN: usize = 30;
const REASON_CHARS_SHOWN: usize = 50;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those that match, see below
    #[arg(
        long,
        short,
        value_name = "FILTER",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,

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
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        check_filter(&self.filter)?;
        let request = SearchRequest {
            filter: self.filter,
            limit: self.limit,
            cursor: self.cursor,
        };
        let page = self.admin.client()?.dead_letters(&request).await?;
        if self.output.json {
            out::json(&page)?;
            return Ok(Exit::Done);
        }
        if page.dead.is_empty() {
            out::note("no dead letters");
        } else {
            out::data(&human(&page.dead, render::now()))?;
        }
        if let Some(cursor) = page.cursor {
            let cursor = render::safe(&cursor);
            out::note(&format!("there are more: add --cursor {cursor}"));
        }
        Ok(Exit::Done)
    }
}

fn human(dead: &[DeadLetter], now: f64) -> String {
    let rows: Vec<Vec<String>> = dead
        .iter()
        .map(|letter| {
            let died = letter.created_at;
            vec![
                letter.intent_id.clone(),
                died.map_or_else(|| "-".to_owned(), |at| render::age(now - at)),
                letter.attempts.to_string(),
                render::safe(&letter.namespace),
                render::summary(&letter.goal, GOAL_CHARS_SHOWN),
                render::summary(&letter.reason, REASON_CHARS_SHOWN),
            ]
        })
        .collect();
    let heading = ["ID", "DEAD FOR", "ATTEMPTS", "NAMESPACE", "GOAL", "REASON"];
    render::table(&heading, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_a_table_with_their_reason() {
        let json = r#"[{"intent_id":"a1","namespace":"default","goal":"mail","attempts":3,"reason":"smtp down","created_at":1700000000.0}]"#;
        let dead: Vec<DeadLetter> = serde_json::from_str(json).unwrap();
        assert_eq!(
            human(&dead, 1_700_000_060.0),
            "ID  DEAD FOR  ATTEMPTS  NAMESPACE  GOAL  REASON\n\
             a1  1m        3         default    mail  smtp down\n"
        );
    }
}
