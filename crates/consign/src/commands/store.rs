//! Check, back up, migrate and copy the database.

mod backup;
mod check;
mod copy;
mod migrate;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use consign_kernel::ids::Micros;
use consign_store::copy::{CopyProgress, CopyStage};
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_store::sqlite::{FileKind, identify};

use crate::config::protocol_settings;
use crate::data_dir::{DataArgs, DataDir};
use crate::failure::{Exit, Failure};
use crate::ledger_location::{LedgerFlags, LedgerLocation};
use crate::ledger_trouble::explained;
use crate::out;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreSubcommand {
    /// Read the whole database once and report damage
    Check(Box<check::Args>),
    /// Copy the database to a new SQLite file, also while servers run
    Backup(Box<backup::Args>),
    /// Migrate the schema without serving
    Migrate(Box<migrate::Args>),
    /// Copy everything to another database, such as from SQLite to PostgreSQL
    Copy(Box<copy::Args>),
}

impl StoreSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Check(args) => args.run().await,
            Self::Backup(args) => args.run().await,
            Self::Migrate(args) => args.run().await,
            Self::Copy(args) => args.run().await,
        }
    }
}

pub(crate) use backup::back_up;
pub(crate) use check::check_file;

/// The database of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// The database itself, as sqlite:PATH or <postgres://USER@HOST/DATABASE>
    #[arg(
        long,
        value_name = "URL",
        env = "CONSIGN_STORE",
        hide_env_values = true
    )]
    store: Option<String>,

    /// File with the password of the database; default is the variable `CONSIGN_STORE_PASSWORD`
    #[arg(
        long,
        value_name = "FILE",
        env = "CONSIGN_STORE_PASSWORD_FILE",
        hide_env_values = true
    )]
    store_password_file: Option<PathBuf>,
}

impl StoreArgs {
    pub(crate) fn data_dir(&self) -> DataDir {
        self.data.directory()
    }

    /// The same ledger that `serve` would use with the same flags and variables.
    pub(crate) fn place(&self) -> anyhow::Result<LedgerLocation> {
        let settings = protocol_settings()?;
        self.data_dir().refuse_writable_by_others()?;
        let named = LedgerFlags {
            store: self.store.as_deref(),
            password_file: self.store_password_file.as_deref(),
        };
        LedgerLocation::of(named, settings.db_path.as_deref(), &self.data_dir())
    }

    /// The file, for commands that support only files.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        match self.place()? {
            LedgerLocation::File(path) => Ok(path),
            LedgerLocation::Database(address) => {
                let message =
                    format!("this command supports SQLite files only, and {address} is not one");
                let hint = "use a file, then copy it there with: consign store copy";
                Err(Failure::usage(message).hint(hint).into())
            }
        }
    }
}

/// Refuses a file that is not a Consign database before anything opens (and thereby creates) it.
fn must_be_ours(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let found = identify(path).map_err(|error| explained(error, path))?;
    let failure = match found {
        FileKind::Consign => return Ok(()),
        FileKind::Nothing => Failure::new(Exit::Nothing, format!("no database at {shown}"))
            .hint("name the directory with --data, or the file with --store sqlite:PATH"),
        FileKind::IntentBus => {
            Failure::failed(format!("{shown} is a database of the original Intent Bus"))
                .hint(format!("import it with: consign import intent-bus {shown}"))
        }
        FileKind::OtherDatabase => {
            Failure::failed(format!("{shown} is a database of another program"))
        }
    };
    Err(failure.into())
}

/// For a database on a server.
fn no_ledger(place: &impl std::fmt::Display) -> Failure {
    let message = format!("no ledger in {place}");
    Failure::new(Exit::Nothing, message).hint("the first server started on it creates one")
}

/// A long read snapshot keeps a primary from removing dead rows.
async fn warn_cost(address: &DatabaseAddress) -> anyhow::Result<()> {
    if !Postgres::is_standby(address).await? {
        out::note(
            "while this runs, the database cannot remove dead rows and claims are slower; a standby in --store works too",
        );
    }
    Ok(())
}

/// Unix time, to record when something was created.
pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let us = since.map_or(0, |since| since.as_micros());
    Micros(i64::try_from(us).unwrap_or(i64::MAX))
}

/// Prints the progress of a copy, if enabled.
#[derive(Debug)]
struct ProgressPrinter {
    show: bool,
    shown: Option<(CopyStage, u64)>,
}

impl ProgressPrinter {
    fn new(show: bool) -> Self {
        Self { show, shown: None }
    }

    fn print(&mut self, progress: CopyProgress) {
        let percent = progress.done * 100 / progress.all.max(1);
        let state = Some((progress.stage, percent));
        if !self.show || self.shown == state {
            return;
        }
        self.shown = state;
        let verb = match progress.stage {
            CopyStage::Copying => "copying",
            CopyStage::Verifying => "verifying",
        };
        let table = progress.table.name();
        out::ask(&format!("\r{verb} {table}, {percent} %        "));
    }

    fn end(&self) {
        if self.shown.is_some() {
            out::note("");
        }
    }
}
