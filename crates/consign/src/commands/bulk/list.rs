//! `consign bulk list`

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

const FILTER_CHARS_SHOWN: usize = 40;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let jobs = self.admin.client()?.bulk_jobs().await?;
        if self.output.json {
            out::json(&jobs)?;
            return Ok(Exit::Done);
        }
        if jobs.is_empty() {
            out::note("no bulk jobs");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = jobs
            .iter()
            .map(|job| {
                vec![
                    job.id.clone(),
                    job.action.clone(),
                    job.state.clone(),
                    job.done.to_string(),
                    job.refused_count().to_string(),
                    job.matching
                        .map_or_else(|| "-".to_owned(), |count| count.to_string()),
                    render::age(render::now() - job.created_at),
                    render::summary(&job.filter, FILTER_CHARS_SHOWN),
                ]
            })
            .collect();
        let heading = [
            "ID", "ACTION", "STATE", "DONE", "REFUSED", "MATCHING", "AGE", "FILTER",
        ];
        out::data(&render::table(&heading, &rows))?;
        Ok(Exit::Done)
    }
}
