//! `consign store check`

use std::sync::Arc;

use consign_engine::EngineClock;
use consign_store::Store;
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use serde::Serialize;

use super::{StoreArgs, must_be_ours};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::lock::DataLock;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    path: String,
    ok: bool,
    findings: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let path = self.store.path()?;
        must_be_ours(&path)?;
        // A running server owns its files. A copy made by `store backup` can be checked meanwhile.
        let _lock = DataLock::database(&path)?;
        let store = Sqlite::open(Options {
            path: path.clone(),
            clock: Arc::new(EngineClock::start(Sqlite::last_time(&path)?)),
            queue_max: QUEUE_REQUESTS_MAX,
        })?;
        let findings = store.check().await?;
        store.close();
        if self.output.json {
            out::json(&Report {
                path: path.display().to_string(),
                ok: findings.is_empty(),
                findings: &findings,
            })?;
        } else {
            for finding in &findings {
                out::data(&render::safe(finding))?;
            }
        }
        if findings.is_empty() {
            out::note(&format!("{} is sound", path.display()));
            return Ok(Exit::Done);
        }
        let message = format!("{} has {} findings", path.display(), findings.len());
        Err(Failure::failed(message)
            .hint("keep the file as it is and go back to a backup that checks clean")
            .into())
    }
}
