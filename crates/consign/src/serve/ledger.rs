//! The ledger a server runs on: a file of its own, or a database that it shares with other nodes.

use std::sync::Arc;

use consign_engine::{EngineClock, SystemTimes};
use consign_store::postgres::{self, DatabaseClock, Postgres, WRITERS_DEFAULT};
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock, SharedStore};

use super::skew;
use crate::place::Place;
use crate::planted;
use crate::secrets;

impl Place {
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
                let ahead_us = skew::ahead_us(&DatabaseClock::at(address)).await?;
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
