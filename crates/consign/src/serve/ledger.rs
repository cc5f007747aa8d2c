//! The ledger of a server: a file, or a database that it shares with other nodes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign_engine::{Engine, EngineClock, Options, SealKey, SystemTimes};
use consign_kernel::receipt::Signer;
use consign_store::postgres::{self, DatabaseAddress, DatabaseClock, Postgres, WRITERS_DEFAULT};
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock, Error, SharedStore};

use super::begin::BeginArgs;
use super::clock_skew;
use crate::failure::Failure;
use crate::ledger_location::LedgerLocation;
use crate::ledger_trouble::explained;
use crate::planted;
use crate::secrets::{self, Secrets};

impl LedgerLocation {
    /// Whether there is data that was written with existing secrets.
    pub(crate) async fn holds(&self) -> anyhow::Result<secrets::LedgerState> {
        match self {
            Self::File(path) => secrets::LedgerState::at(path),
            Self::Database(address) => Ok(if Postgres::exists(address).await? {
                secrets::LedgerState::Shared
            } else {
                secrets::LedgerState::New
            }),
        }
    }

    /// A clock that continues from the last commit, or one that follows the database's clock.
    pub(crate) async fn clock(&self, allowed: BeginArgs) -> anyhow::Result<Arc<EngineClock>> {
        Ok(Arc::new(match self {
            Self::File(path) => {
                let last = Sqlite::last_time(path).map_err(|error| explained(error, path))?;
                allowed.refuse_future(self, last, SystemTimes::own_wall())?;
                EngineClock::start(last)
            }
            Self::Database(address) => {
                let ahead_us = clock_skew::ahead_us(&DatabaseClock::at(address)).await?;
                let now = SystemTimes::own_wall().plus(ahead_us);
                allowed.refuse_future(self, Postgres::last_time(address).await?, now)?;
                EngineClock::over(SystemTimes::ahead(ahead_us), None)
            }
        }))
    }

    pub(crate) async fn open(
        &self,
        clock: Arc<dyn Clock>,
        node: i64,
    ) -> anyhow::Result<OpenLedger> {
        Ok(match self {
            Self::File(path) => {
                let opened = Sqlite::open(sqlite::Options {
                    path: path.clone(),
                    clock,
                    queue_max: sqlite::QUEUE_REQUESTS_MAX,
                });
                OpenLedger::File(Arc::new(opened.map_err(|error| explained(error, path))?))
            }
            Self::Database(address) => {
                let options = postgres::Options {
                    address: DatabaseAddress::clone(address),
                    clock,
                    queue_max: postgres::QUEUE_REQUESTS_MAX,
                    writers: WRITERS_DEFAULT,
                    node,
                    hold: planted::last_migration()?,
                };
                OpenLedger::Database(Arc::new(Postgres::open(options).await?))
            }
        })
    }
}

/// The open ledger.
#[derive(Clone, Debug)]
pub(crate) enum OpenLedger {
    File(Arc<Sqlite>),
    Database(Arc<Postgres>),
}

impl OpenLedger {
    /// The engine on this ledger, with the given secrets.
    pub(crate) fn engine(
        &self,
        clock: &Arc<EngineClock>,
        secrets: &Secrets,
        cleanup_interval: Duration,
    ) -> anyhow::Result<Engine> {
        Ok(Engine::new(Options {
            store: self.shared(),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: random_bytes()?,
            seal: SealKey::new(*secrets.seal_key.reveal()),
            signer: Signer::from_seed(secrets.receipt_seed.reveal()),
            main_key: secrets.bus_secret.reveal().to_owned(),
            cleanup_interval,
        }))
    }

    pub(super) fn shared(&self) -> SharedStore {
        match self {
            Self::File(sqlite) => sqlite.clone(),
            Self::Database(postgres) => postgres.clone(),
        }
    }

    /// Returns only if the disk failed to store a commit.
    pub(crate) async fn until_lost(&self) {
        match self {
            Self::File(sqlite) => sqlite.until_lost().await,
            Self::Database(postgres) => postgres.until_lost().await,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::File(sqlite) => sqlite.is_lost(),
            Self::Database(postgres) => postgres.is_lost(),
        }
    }

    /// The error after [`Self::is_lost`].
    pub(crate) fn loss(&self) -> Failure {
        let why = match self {
            Self::File(sqlite) => sqlite.why_lost(),
            Self::Database(_) => None,
        };
        match why {
            Some(why) => Failure::failed(why)
                .hint("find out which program changes the files of a running server; the log contains what was saved"),
            None => Failure::failed(Error::Lost.to_string())
                .hint("check the disk; all acknowledged writes are safe, and a restart reads the actual state of the disk"),
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Self::File(sqlite) => sqlite.close(),
            Self::Database(postgres) => postgres.close(),
        }
    }
}

pub(crate) fn random_bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("no source of random numbers")?;
    Ok(bytes)
}
