//! Check, back up, migrate and copy the database.

mod backup;
mod check;
mod copy;
mod migrate;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use consign_kernel::ids::Micros;
use consign_store::copy::{CopyStage, Progress};
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_store::sqlite::{FileKind, identify};

use crate::config::protocol_settings;
use crate::data_dir::{DataArgs, DataDir};
use crate::failure::{Exit, Failure};
use crate::out;
use crate::place::{Named, Place};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Read everything once and say what is wrong with it
    Check(Box<check::Args>),
    /// Copy the database to a new SQLite file, also while servers run
    Backup(Box<backup::Args>),
    /// Bring the schema up to date without serving
    Migrate(Box<migrate::Args>),
    /// Copy everything to another database, such as from SQLite to PostgreSQL
    Copy(Box<copy::Args>),
}

impl Action {
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

/// Which database a command works on.
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

    /// The same ledger that `serve` would use under the same flags and variables.
    pub(crate) fn place(&self) -> anyhow::Result<Place> {
        let settings = protocol_settings()?;
        self.data_dir().refuse_writable_by_others()?;
        let named = Named {
            store: self.store.as_deref(),
            password_file: self.store_password_file.as_deref(),
        };
        Place::of(named, settings.db_path.as_deref(), &self.data_dir())
    }

    /// The file, for commands that work on nothing else.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        match self.place()? {
            Place::File(path) => Ok(path),
            Place::Database(address) => {
                let message = format!("this command works on SQLite files, and {address} is none");
                let hint = "work on a file, then bring it there with: consign store copy";
                Err(Failure::usage(message).hint(hint).into())
            }
        }
    }
}

/// Refuses what is not a database of ours, before anything opens (and thereby makes) it.
fn must_be_ours(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let failure = match identify(path)? {
        FileKind::Consign => return Ok(()),
        FileKind::Nothing => {
            Failure::new(Exit::Nothing, format!("there is no database at {shown}"))
                .hint("name the directory with --data, or the file with --store sqlite:PATH")
        }
        FileKind::IntentBus => {
            Failure::failed(format!("{shown} is a database of the original Intent Bus")).hint(
                format!("take it over with: consign import intent-bus {shown}"),
            )
        }
        FileKind::OtherDatabase => {
            Failure::failed(format!("{shown} is a database of another program"))
        }
    };
    Err(failure.into())
}

/// For a database on a server.
fn no_ledger(place: &impl std::fmt::Display) -> Failure {
    let message = format!("there is no ledger in {place}");
    Failure::new(Exit::Nothing, message).hint("the first server that is started on it makes one")
}

/// Whoever looks at everything as of one instant keeps a primary from cleaning up behind those who work.
async fn tell_cost(address: &DatabaseAddress) -> anyhow::Result<()> {
    if !Postgres::is_standby(address).await? {
        out::note(
            "as long as this takes, the database cleans nothing away and claims cost more; a standby in --store serves as well",
        );
    }
    Ok(())
}

/// Unix time, to note when something was made.
fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let us = since.map_or(0, |since| since.as_micros());
    Micros(i64::try_from(us).unwrap_or(i64::MAX))
}

/// Tells how far a copy is, if somebody looks.
#[derive(Debug)]
struct Teller {
    show: bool,
    shown: Option<(CopyStage, u64)>,
}

impl Teller {
    fn new(show: bool) -> Self {
        Self { show, shown: None }
    }

    fn tell(&mut self, progress: Progress) {
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
