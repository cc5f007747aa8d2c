//! A bulk form of `retry`, `cancel` or `delete`: count, ask, begin, follow.

use consign_client::{Client, SearchRequest};
use serde::Serialize;

use super::{exit, follow, summary};
use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::{out, render};

/// The flags of a command that may become a bulk job.
#[derive(Debug, clap::Args)]
pub(crate) struct BulkBegin {
    /// Change all rows that match, as a bulk job; consign intent list --help shows the terms
    #[arg(long, short, value_name = "FILTER", conflicts_with = "ids")]
    pub(crate) filter: Option<String>,

    /// With a filter: begin the job, print its id, and do not wait for its end
    #[arg(long, requires = "filter")]
    detach: bool,
}

#[derive(Serialize)]
struct CountReport<'a> {
    action: &'a str,
    filter: &'a str,
    dry_run: bool,
    matching: u64,
}

impl BulkBegin {
    pub(crate) async fn run(
        &self,
        client: &Client,
        (action, filter): (&str, &str),
        (yes, dry_run): (bool, bool),
        output: OutputArgs,
    ) -> anyhow::Result<Exit> {
        crate::commands::intent::check_filter(filter)?;
        if filter.trim().is_empty() {
            let message = "an empty filter matches every row";
            let hint = "name at least one term, such as state:dead";
            return Err(Failure::usage(message).hint(hint).into());
        }
        let matching = count(client, filter).await?;
        let shown = render::safe(filter);
        if dry_run {
            if output.json {
                out::json(&CountReport {
                    action,
                    filter,
                    dry_run,
                    matching,
                })?;
            } else {
                out::data(&format!("{matching}"))?;
                out::note(&format!(
                    "would {action} {matching} rows that match {shown}; nothing was changed"
                ));
            }
            return Ok(Exit::Done);
        }
        if matching == 0 {
            return Err(Failure::new(Exit::Nothing, format!("nothing matches {shown}")).into());
        }
        out::note(&format!("{matching} rows match {shown}"));
        confirm(&format!("{action} them?"), yes)?;
        let job = client.start_bulk(action, filter).await?;
        if self.detach {
            if output.json {
                out::json(&job)?;
            } else {
                out::data(&job.id)?;
                out::note(&format!("follow it with: consign bulk watch {}", job.id));
            }
            return Ok(Exit::Done);
        }
        let job = follow(client, &job.id).await?;
        if output.json {
            out::json(&job)?;
        } else {
            out::data(&summary(&job))?;
        }
        Ok(exit(&job))
    }
}

/// Counts all rows that match, whatever the number of requests.
async fn count(client: &Client, filter: &str) -> anyhow::Result<u64> {
    let mut request = SearchRequest {
        filter: filter.to_owned(),
        ..SearchRequest::default()
    };
    let (mut count, mut examined) = (0, 0);
    loop {
        let page = client.count(&request).await?;
        count += page.count;
        examined += page.examined;
        if page.cursor.is_none() {
            out::progress_done();
            return Ok(count);
        }
        request.cursor = page.cursor;
        out::progress(&format!("examined {examined} rows, {count} match"));
    }
}
