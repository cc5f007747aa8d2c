//! `consign audit list [--since 2d] [--actor A] [--action A] [--limit N]`

use consign_client::AuditRecord;

use super::FilterArgs;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,

    /// How many entries at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let mut query = self.filter.query(self.limit);
        let mut entries = Vec::new();
        let wanted = self.limit as usize;
        loop {
            let page = client.audit(&query).await?;
            entries.extend(page.entries);
            query.after = page.next;
            if query.after.is_none() || entries.len() >= wanted {
                break;
            }
        }
        let more = query.after.is_some() || entries.len() > wanted;
        entries.truncate(wanted);
        if self.output.json {
            out::json(&entries)?;
        } else if entries.is_empty() {
            out::note("no entries");
        } else {
            out::data(&human(&entries))?;
            if more {
                out::note("there may be more: raise --limit, or use: consign audit export");
            }
        }
        Ok(Exit::Done)
    }
}

fn human(entries: &[AuditRecord]) -> String {
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let target = if entry.target.is_empty() {
                "-"
            } else {
                &entry.target
            };
            vec![
                render::time(entry.at),
                render::safe(&entry.actor),
                render::safe(&entry.action),
                render::safe(target),
                render::safe(&entry.outcome),
                render::safe(&entry.address),
            ]
        })
        .collect();
    let heading = ["AT", "ACTOR", "ACTION", "TARGET", "OUTCOME", "FROM"];
    render::table(&heading, &rows)
}
