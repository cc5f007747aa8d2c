//! The backend for many nodes: stateless writers on one PostgreSQL database, which stores and replicates everything.
//!
//! Invariant: a row is locked before a decision about it, and a once-key has a unique index, so any number of nodes may
//! write at the same time. A transaction that loses a race is retried.

mod address;
mod check;
pub(crate) mod copy;
mod dedupe;
mod fact_watermark;
mod flush;
mod hosts;
mod load;
mod locks;
mod notify;
mod positions;
mod readers;
mod reads;
mod row_encoder;
mod rows;
mod schema;
mod search;
mod session;
mod settings;
mod tx;
mod wire;
mod working_set;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use consign_kernel::command::{Reply, Request};
use consign_kernel::ids::{FactSeq, Micros};

pub use address::DatabaseAddress;
pub(crate) use address::cause;
pub use schema::SCHEMA_VERSION;

use crate::{BoxFuture, Clock, CommitListener, Dump, Error, Query, Rows, Stats, Store};
use fact_watermark::FactWatermark;
use locks::KnownLocks;
use notify::Notifier;
use readers::PostgresReadPool;
use writer::{WriterNode, Writers};

/// How many requests may wait for the writers before new ones are refused as busy.
pub const QUEUE_REQUESTS_MAX: usize = 8_192;
/// While one group is in progress, the next one may start beside it. A third writer only makes groups smaller.
pub const WRITERS_DEFAULT: usize = 2;
const READERS: usize = 8;
/// The name of a database that holds only this version's empty schema, for tests to copy.
pub const TEMPLATE: &str = "consign_template_16";

#[derive(Clone)]
pub struct Options {
    pub address: DatabaseAddress,
    pub clock: Arc<dyn Clock>,
    pub queue_max: usize,
    pub writers: usize,
    /// The number of this node; no other running node has the same.
    pub node: i64,
    /// Later migrations are not run, as by an older program; only tests set this.
    pub hold: Option<i32>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("address", &self.address)
            .field("queue_max", &self.queue_max)
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}

pub struct Postgres {
    address: DatabaseAddress,
    writers: Writers,
    readers: Arc<PostgresReadPool>,
    watermark: FactWatermark,
    clock: Arc<dyn Clock>,
    _notifier: Notifier,
}

impl Postgres {
    /// Connects to the database, migrates its schema, starts the writers.
    pub async fn open(options: Options) -> Result<Self, Error> {
        schema::migrate(&options.address, options.clock.now().0, options.hold).await?;
        for behind in positions::recover(&options.address, false).await? {
            tracing::warn!(
                behind,
                "a sequence was behind its table, as after a restore without sequences"
            );
        }
        let readers = PostgresReadPool::new(options.address.clone(), READERS);
        let watermark = FactWatermark::default();
        let last_fact = reads::last_fact(&readers, &watermark).await?;
        // On a connection that stays open, by which a copy detects this server.
        copy::refuse_part(&options.address).await?;
        let node = Arc::new(WriterNode {
            id: options.node,
            clock: Arc::clone(&options.clock),
            last_time: AtomicI64::new(0),
            locks: KnownLocks::default(),
        });
        let writers = Writers::start(&options.address, &node, options.writers, options.queue_max)?;
        let last = &writers.shared.meters.last_fact;
        last.store(last_fact.0, Ordering::Relaxed);
        let notifier = Notifier::start(&options.address, node.id, &writers.shared);
        Ok(Self {
            address: options.address,
            writers,
            readers,
            watermark,
            clock: options.clock,
            _notifier: notifier,
        })
    }

    /// Migrates the schema, and does nothing else.
    pub async fn migrate(address: &DatabaseAddress, now: Micros) -> Result<(), Error> {
        schema::migrate(address, now.0, None).await
    }

    /// The migrations that the ledger still needs; `None` if there is no ledger. Changes nothing.
    pub async fn pending(address: &DatabaseAddress) -> Result<Option<Vec<String>>, Error> {
        schema::pending(address).await
    }

    /// Checks a database as [`Store::check`] does. Writes nothing, so nodes may run.
    pub async fn check_database(address: &DatabaseAddress) -> Result<Vec<String>, Error> {
        copy::refuse_part(address).await?;
        let checked = check::check(&PostgresReadPool::new(address.clone(), 1)).await;
        checked.map_err(instant_lost)
    }

    /// Advances sequences that are behind their tables, and returns which. With `dry_run` it changes nothing.
    pub async fn repair(address: &DatabaseAddress, dry_run: bool) -> Result<Vec<String>, Error> {
        copy::refuse_part(address).await?;
        positions::recover(address, dry_run).await
    }

    /// When the last fact was written, by the database's clock; `None` if there is none.
    pub async fn last_time(address: &DatabaseAddress) -> Result<Option<Micros>, Error> {
        if !schema::exists(address).await? {
            return Ok(None);
        }
        let client = address.connect().await?;
        let sql = "SELECT at FROM facts ORDER BY seq DESC LIMIT 1";
        let found = client.query_opt(sql, &[]).await?;
        Ok(found.map(|row| row.try_get(0)).transpose()?.map(Micros))
    }

    /// Whether the server is a standby and accepts no writes.
    pub async fn is_standby(address: &DatabaseAddress) -> Result<bool, Error> {
        let client = address.connect().await?;
        let found = client.query_one("SELECT pg_is_in_recovery()", &[]).await?;
        Ok(found.try_get(0)?)
    }

    /// The clock that all nodes of this database use.
    pub fn clock(&self) -> DatabaseClock {
        DatabaseClock::at(&self.address)
    }

    /// Whether the database has a ledger.
    pub async fn exists(address: &DatabaseAddress) -> Result<bool, Error> {
        schema::exists(address).await
    }

    /// Returns only if a thread of the ledger panicked. Then everything is refused until a restart.
    pub async fn until_lost(&self) {
        self.writers.shared.durability.until_lost().await;
    }

    pub fn is_lost(&self) -> bool {
        self.writers.shared.durability.is_lost()
    }

    /// Executes the queued requests and ends the writers. Later requests are refused.
    pub fn close(&self) {
        self.writers.close();
    }
}

/// A standby must apply the cleanup of its primary, and then cancels transactions that still read the old rows.
pub(crate) fn instant_lost(error: Error) -> Error {
    let Error::Conflict(reason) = error else {
        return error;
    };
    Error::Unavailable(format!(
        "the database did not keep the snapshot of the read: {reason}; on a standby, set max_standby_streaming_delay = -1 for as long as this runs"
    ))
}

/// The database's clock, on a connection of its own, so that no other statement delays the answer.
pub struct DatabaseClock(Arc<PostgresReadPool>);

impl DatabaseClock {
    pub fn at(address: &DatabaseAddress) -> Self {
        Self(PostgresReadPool::new(address.clone(), 1))
    }

    pub async fn ask(&self) -> Result<Micros, Error> {
        reads::time(&self.0).await
    }
}

impl fmt::Debug for DatabaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseClock")
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Store for Postgres {
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Box::pin(self.writers.execute(request))
    }

    fn listen(&self, listener: CommitListener) {
        self.writers.shared.listeners.add(listener);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        let now = self.clock.now();
        Box::pin(reads::read(&self.readers, &self.watermark, query, now))
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(check::check(&self.readers))
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        Box::pin(reads::dump(&self.readers))
    }

    fn stats(&self) -> Stats {
        let meters = &self.writers.shared.meters;
        Stats {
            commits: meters.commits.load(Ordering::Relaxed),
            requests: meters.requests.load(Ordering::Relaxed),
            failed_commits: meters.failed.load(Ordering::Relaxed),
            waiting: meters.waiting.load(Ordering::Relaxed),
            refused: meters.refused.load(Ordering::Relaxed),
            last_fact: FactSeq(meters.last_fact.load(Ordering::Acquire)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_snapshot_names_the_setting_and_other_errors_keep_their_text() {
        let lost = instant_lost(Error::Conflict("conflict with recovery".to_owned()));
        let said = lost.to_string();
        assert!(said.contains("conflict with recovery"), "{said}");
        assert!(said.contains("max_standby_streaming_delay"), "{said}");
        let other = instant_lost(Error::Busy);
        assert!(matches!(other, Error::Busy), "{other:?}");
    }
}
