//! What a search of an operator found, as a table.

use consign_client::{Client, FoundIntent, FoundPage, SearchRequest};
use consign_kernel::filter::Filter;
use consign_kernel::limits::PAGE_ITEMS_MAX;

use crate::failure::Failure;
use crate::{out, render};

/// The terms of a filter, below the help of commands that take one.
pub(crate) const FILTER_HELP: &str = "\
Filter: terms separated by spaces, all of which must match
  state:dead,open    word of any protocol      age>2h  age<5m     30s 5m 2h 7d
  goal:mail.*        a star only at the end    created>2026-11-02 date or RFC 3339
  ns:default         namespace                 error:\"refused\"    text in the last error
  owner:k_0a6d...    key id                    payload.a.b=17     member of the payload
  face:intent        protocol                  id:01a1...         one row
A minus negates a term (-goal:mail.*), a comma separates alternatives, and quotation
marks or a backslash take characters literally.";

const GOAL_CHARS_SHOWN: usize = 24;
const ERROR_CHARS_SHOWN: usize = 32;

/// Refuses a filter with a mistake before anything is sent, and points at it.
pub(crate) fn check(filter: &str) -> Result<(), Failure> {
    let Err(error) = Filter::parse(filter) else {
        return Ok(());
    };
    let arrow = " ".repeat(error.column.saturating_sub(1));
    let shown = render::safe(filter);
    Err(Failure::usage(format!(
        "the filter has a mistake at column {}\n  {shown}\n  {arrow}^ expected {}",
        error.column, error.expected
    ))
    .hint("consign intent list --help shows the terms"))
}

/// Pages until so many rows are found or nothing is left. A page may be empty, because it examines a bounded number of rows.
pub(super) async fn search(
    client: &Client,
    filter: &str,
    limit: u32,
    cursor: Option<String>,
) -> anyhow::Result<FoundPage> {
    let mut all = FoundPage {
        intents: Vec::new(),
        cursor,
        examined: 0,
    };
    loop {
        let found = u32::try_from(all.intents.len()).unwrap_or(u32::MAX);
        let page = client
            .search(&SearchRequest {
                filter: filter.to_owned(),
                limit: Some(limit.saturating_sub(found).clamp(1, PAGE_ITEMS_MAX)),
                cursor: all.cursor.take(),
            })
            .await?;
        all.examined += page.examined;
        all.intents.extend(page.intents);
        all.cursor = page.cursor;
        if all.cursor.is_none() || all.intents.len() >= limit as usize {
            out::progress_done();
            return Ok(all);
        }
        out::progress(&format!(
            "examined {} rows, found {}",
            all.examined,
            all.intents.len()
        ));
    }
}

pub(super) fn table(intents: &[FoundIntent]) -> String {
    let rows: Vec<Vec<String>> = intents
        .iter()
        .map(|intent| {
            let error = intent.last_error.as_deref().unwrap_or("-");
            vec![
                intent.id.clone(),
                render::safe(&intent.state),
                render::age(intent.age),
                format!("{}/{}", intent.attempts, intent.max_attempts),
                render::safe(&intent.face),
                render::safe(&intent.namespace),
                render::summary(&intent.goal, GOAL_CHARS_SHOWN),
                render::summary(error, ERROR_CHARS_SHOWN),
            ]
        })
        .collect();
    let heading = [
        "ID",
        "STATE",
        "AGE",
        "ATTEMPTS",
        "FACE",
        "NAMESPACE",
        "GOAL",
        "ERROR",
    ];
    render::table(&heading, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_a_table_with_age_attempts_and_error() {
        let json = r#"[{"id":"a1","face":"intent","state":"dead","namespace":"default","goal":"mail.send","owner":"main",
            "attempts":3,"max_attempts":3,"last_error":"Traceback (most recent call last):\n  x\nKeyError: 'a'","age":7260.5,
            "created_at":1700000000.0}]"#;
        let intents: Vec<FoundIntent> = serde_json::from_str(json).unwrap();
        assert_eq!(
            table(&intents),
            "ID  STATE  AGE  ATTEMPTS  FACE    NAMESPACE  GOAL       ERROR\n\
             a1  dead   2h   3/3       intent  default    mail.send  KeyError: 'a'\n"
        );
    }

    #[test]
    fn a_mistake_in_a_filter_is_pointed_at() {
        assert!(check("state:dead age>1h").is_ok());
        let refused = check("state:dead age>soon").unwrap_err().to_string();
        assert!(
            refused.starts_with(
                "the filter has a mistake at column 16\n  state:dead age>soon\n                 ^ expected a length of time"
            ),
            "{refused}"
        );
    }
}
