//! `consign store migrate`

use consign_store::postgres::Postgres;
use consign_store::sqlite;
use serde::Serialize;

use super::{StoreArgs, must_be_ours, no_ledger, now};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::ledger_location::LedgerLocation;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = WHEN)]
pub(crate) struct Args {
    /// Show which migrations are pending, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const WHEN: &str = "\
A server does the same when it starts. Make a backup first: from then on a server
of an older version refuses the file. On PostgreSQL servers of the version before
go on working beside new ones, and older ones refuse a schema that is too new.";

#[derive(Serialize)]
struct MigrateReport {
    path: String,
    dry_run: bool,
    migrations: Vec<String>,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let place = self.store.place()?;
        if let LedgerLocation::File(path) = &place {
            must_be_ours(path)?;
        }
        // A running server has migrated its file itself. The migration locks a database.
        let _lock = if self.dry_run { None } else { place.lock()? };
        let migrations = match &place {
            LedgerLocation::File(path) => sqlite::pending(path)?,
            LedgerLocation::Database(address) => Postgres::pending(address)
                .await?
                .ok_or_else(|| no_ledger(address))?,
        };
        if !self.dry_run {
            match &place {
                LedgerLocation::File(path) => sqlite::migrate(path, now().0)?,
                LedgerLocation::Database(address) => Postgres::migrate(address, now()).await?,
            }
        }
        self.show(&MigrateReport {
            path: place.to_string(),
            dry_run: self.dry_run,
            migrations,
        })?;
        Ok(Exit::Done)
    }

    fn show(&self, report: &MigrateReport) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(report);
        }
        for migration in &report.migrations {
            out::data(migration)?;
        }
        out::note(&match (report.migrations.len(), report.dry_run) {
            (0, _) => format!("{} is up to date", report.path),
            (pending, true) => format!("{} needs {pending}; nothing was changed", report.path),
            (applied, false) => format!("{} had {applied} applied", report.path),
        });
        Ok(())
    }
}
