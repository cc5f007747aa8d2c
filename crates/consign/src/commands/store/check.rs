//! `consign store check`

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use consign_kernel::ids::Micros;
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Clock, Store};
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
        let data = self.store.data_dir();
        // A running server owns its files. A copy made by `store backup` can be checked meanwhile.
        let _lock = if path.starts_with(data.root()) {
            Some(DataLock::acquire(&data)?)
        } else {
            None
        };
        let store = Sqlite::open(Options {
            path: path.clone(),
            clock: Arc::new(WallClock),
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

/// Nothing is decided here, so the plain clock of the machine will do.
#[derive(Debug)]
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Micros {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since_epoch.map_or(0, |elapsed| elapsed.as_micros());
        Micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}
