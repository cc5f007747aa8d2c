//! `consign store check`

use std::sync::Arc;

use consign_engine::EngineClock;
use consign_store::Store;
use consign_store::postgres::{Address, Postgres};
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use serde::Serialize;

use super::{StoreArgs, must_be_ours, no_ledger, tell_cost};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::lock::DataLock;
use crate::place::Place;
use crate::{out, render};

const STANDBY: &str = "\
A PostgreSQL is read as of one instant, and as long as that takes it cleans nothing away,
so that claims cost more and more. Where many are made, name a standby in --store: it
serves as well, and nothing is written.";

#[derive(Debug, clap::Args)]
#[command(after_help = STANDBY)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    path: &'a str,
    ok: bool,
    findings: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let place = self.store.place()?;
        let shown = place.to_string();
        let (findings, keep) = match place {
            Place::File(path) => (check_file(path).await?, "the file"),
            Place::Database(address) => {
                let address = address.for_reading();
                if !self.output.json {
                    tell_cost(&address).await?;
                }
                (check_database(&address).await?, "the database")
            }
        };
        if self.output.json {
            out::json(&Report {
                path: &shown,
                ok: findings.is_empty(),
                findings: &findings,
            })?;
        } else {
            for finding in &findings {
                out::data(&render::safe(finding))?;
            }
        }
        if findings.is_empty() {
            out::note(&format!("{shown} is sound"));
            return Ok(Exit::Done);
        }
        let message = format!("{shown} has {} findings", findings.len());
        Err(Failure::failed(message)
            .hint(format!(
                "keep {keep} as it is and go back to a backup that checks clean"
            ))
            .into())
    }
}

pub(crate) async fn check_file(path: std::path::PathBuf) -> anyhow::Result<Vec<String>> {
    must_be_ours(&path)?;
    // A running server owns its files. A copy made by `store backup` can be checked meanwhile.
    let _lock = DataLock::database(&path)?;
    let store = Sqlite::open(Options {
        clock: Arc::new(EngineClock::start(Sqlite::last_time(&path)?)),
        path,
        queue_max: QUEUE_REQUESTS_MAX,
    })?;
    let findings = store.check().await?;
    store.close();
    Ok(findings)
}

/// Reads only, as of one instant, so servers may run. A schema that is not of this version is not changed under them.
async fn check_database(address: &Address) -> anyhow::Result<Vec<String>> {
    let pending = Postgres::pending(address).await?;
    let pending = pending.ok_or_else(|| no_ledger(address))?;
    if !pending.is_empty() {
        return Err(
            Failure::failed(format!("{address} has a schema of an older version"))
                .hint("bring it up to date with: consign store migrate")
                .into(),
        );
    }
    Ok(Postgres::look_over(address).await?)
}
