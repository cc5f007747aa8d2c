//! The ledger a server runs on: a file of its own, or a database that it shares with other nodes.

use std::sync::Arc;

use consign_engine::EngineClock;
use consign_store::postgres::{self, Postgres, WRITERS_DEFAULT};
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock, SharedStore};

use crate::place::Place;
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

    /// A clock that begins where the last one ended.
    pub(super) fn clock(&self) -> anyhow::Result<Arc<EngineClock>> {
        let last = match self {
            Self::File(path) => Sqlite::last_time(path)?,
            // No node knows when the last commit of all of them was; their clocks are kept together from outside.
            Self::Database(_) => None,
        };
        Ok(Arc::new(EngineClock::start(last)))
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
