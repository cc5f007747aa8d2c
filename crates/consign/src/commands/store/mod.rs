//! Check and back up the database.

mod backup;
mod check;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use consign_store::sqlite::{Holds, identify};

use crate::config::{database_path, protocol_settings};
use crate::data_dir::{DataArgs, DataDir};
use crate::failure::{Exit, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Read everything once and say what is wrong with it
    Check(Box<check::Args>),
    /// Copy the database to a new file, also while the server runs
    Backup(Box<backup::Args>),
}

impl Action {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Check(args) => args.run().await,
            Self::Backup(args) => args.run(),
        }
    }
}

/// Which database a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// The database itself, as sqlite:PATH
    #[arg(
        long,
        value_name = "URL",
        env = "CONSIGN_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
}

impl StoreArgs {
    pub(crate) fn data_dir(&self) -> DataDir {
        self.data.directory()
    }

    /// The same file that `serve` would use under the same flags and variables.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let settings = protocol_settings()?;
        let store = self.store.as_deref();
        Ok(database_path(
            store,
            settings.db_path.as_deref(),
            &self.data_dir(),
        )?)
    }
}

/// Refuses what is not a database of ours, before anything opens (and thereby makes) it.
fn must_be_ours(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let failure = match identify(path)? {
        Holds::Consign => return Ok(()),
        Holds::Nothing => Failure::new(Exit::Nothing, format!("there is no database at {shown}"))
            .hint("name the directory with --data, or the file with --store sqlite:PATH"),
        Holds::IntentBus => {
            Failure::failed(format!("{shown} is a database of the original Intent Bus")).hint(
                format!("take it over with: consign import intent-bus {shown}"),
            )
        }
        Holds::OtherDatabase => {
            Failure::failed(format!("{shown} is a database of another program"))
        }
    };
    Err(failure.into())
}
