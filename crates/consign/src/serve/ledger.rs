//! The ledger a server runs on: a file of its own, or a database that it shares with other nodes.

use std::path::PathBuf;
use std::sync::Arc;

use consign_engine::{EngineClock, SystemTimes};
use consign_store::postgres::{self, Address, Postgres, WRITERS_DEFAULT};
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock, SharedStore};

use super::{ServeArgs, skew};
use crate::config::database_path;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::lock::DataLock;
use crate::planted;
use crate::secrets;

/// Where the ledger is.
#[derive(Debug)]
pub(super) enum Place {
    File(PathBuf),
    Database(Box<Address>),
}

impl Place {
    pub(super) fn of(
        args: &ServeArgs,
        db_path: Option<&std::path::Path>,
        data: &DataDir,
    ) -> anyhow::Result<Self> {
        let store = args.store.as_deref();
        let url = store.filter(|url| is_postgres(url));
        let Some(url) = url else {
            return Ok(Self::File(database_path(store, db_path, data)?));
        };
        let password = password(args)?;
        let address = Address::parse(url, password.as_deref())
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self::Database(Box::new(address)))
    }

    /// Keeps other servers from the same file. Databases are there to be shared.
    pub(super) fn lock(&self) -> anyhow::Result<Option<DataLock>> {
        match self {
            Self::File(path) => DataLock::database(path).map(Some),
            Self::Database(_) => Ok(None),
        }
    }

    /// Whether there is data that was written with secrets of before.
    pub(super) async fn holds(&self) -> anyhow::Result<secrets::Ledger> {
        match self {
            Self::File(path) => secrets::Ledger::at(path),
            Self::Database(address) => Ok(if Postgres::exists(address).await? {
                secrets::Ledger::Existing
            } else {
                secrets::Ledger::New
            }),
        }
    }

    /// A clock that begins where the last one ended, or one that shows the database's time.
    pub(super) async fn clock(&self) -> anyhow::Result<Arc<EngineClock>> {
        Ok(Arc::new(match self {
            Self::File(path) => EngineClock::start(Sqlite::last_time(path)?),
            Self::Database(address) => {
                let ahead_us = skew::ahead_us(|| Postgres::time_at(address)).await?;
                EngineClock::over(SystemTimes::ahead(ahead_us), None)
            }
        }))
    }

    pub(super) async fn open(self, clock: Arc<dyn Clock>, node: i64) -> anyhow::Result<Ledger> {
        Ok(match self {
            Self::File(path) => Ledger::File(Arc::new(Sqlite::open(sqlite::Options {
                path,
                clock,
                queue_max: sqlite::QUEUE_REQUESTS_MAX,
            })?)),
            Self::Database(address) => {
                let options = postgres::Options {
                    address: *address,
                    clock,
                    queue_max: postgres::QUEUE_REQUESTS_MAX,
                    writers: WRITERS_DEFAULT,
                    node,
                    hold: planted::held_migration()?,
                };
                Ledger::Database(Arc::new(Postgres::open(options).await?))
            }
        })
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The password from its file or its variable; one in the address would be seen by everybody who lists processes.
fn password(args: &ServeArgs) -> anyhow::Result<Option<String>> {
    let Some(path) = &args.store_password_file else {
        return Ok(std::env::var("CONSIGN_STORE_PASSWORD").ok());
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "the password file {} cannot be read: {error}",
            path.display()
        ))
    })?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// The open ledger.
#[derive(Clone, Debug)]
pub(super) enum Ledger {
    File(Arc<Sqlite>),
    Database(Arc<Postgres>),
}

impl Ledger {
    pub(super) fn shared(&self) -> SharedStore {
        match self {
            Self::File(sqlite) => sqlite.clone(),
            Self::Database(postgres) => postgres.clone(),
        }
    }

    /// Returns only if the disk failed to keep a commit.
    pub(super) async fn until_lost(&self) {
        match self {
            Self::File(sqlite) => sqlite.until_lost().await,
            Self::Database(postgres) => postgres.until_lost().await,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::File(sqlite) => sqlite.is_lost(),
            Self::Database(postgres) => postgres.is_lost(),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::File(sqlite) => sqlite.close(),
            Self::Database(postgres) => postgres.close(),
        }
    }
}
