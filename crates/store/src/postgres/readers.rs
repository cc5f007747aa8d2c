//! A pool of connections for reads.
//!
//! Invariant: every wait is bounded. With an unresponsive database a query times out, and so does a wait for a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::{Client, Row, Statement};

use super::address::DatabaseAddress;
use super::wire::{Parameters, RESPONSE_TIMEOUT, is_silent, silent};
use crate::Error;

/// The wait for a connection. Statements are short: a longer wait means that the database does not respond.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long no new connection is tried after one failed.
const FAILURE_SHARED: Duration = Duration::from_secs(1);

/// For one statement of a read of the whole database.
const LONG: Duration = Duration::from_hours(1);

pub(super) struct PostgresReadPool {
    address: DatabaseAddress,
    idle: Mutex<Vec<PooledClient>>,
    places: Semaphore,
    /// When the last connection failed, and why.
    failed: Mutex<Option<(Instant, String)>>,
}

struct PooledClient {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// A connection that returns to the pool when dropped.
pub(super) struct PooledReader<'r> {
    readers: &'r PostgresReadPool,
    reader: Option<PooledClient>,
    /// A transaction is open: if the reader is dropped now, the connection is not reused.
    open: bool,
    _place: SemaphorePermit<'r>,
}

impl PostgresReadPool {
    pub(super) fn new(address: DatabaseAddress, count: usize) -> Arc<Self> {
        Arc::new(Self {
            address,
            idle: Mutex::default(),
            places: Semaphore::new(count),
            failed: Mutex::default(),
        })
    }

    pub(super) async fn acquire(&self) -> Result<PooledReader<'_>, Error> {
        let place = timeout(ACQUIRE_TIMEOUT, self.places.acquire()).await;
        let place = place
            .map_err(|_elapsed| Error::Busy)?
            .map_err(|_| Error::Closed)?;
        let idle = self.idle().pop();
        let reader = match idle.filter(|reader| !reader.client.is_closed()) {
            Some(reader) => reader,
            None => PooledClient {
                client: self.connect().await?,
                statements: HashMap::new(),
            },
        };
        Ok(PooledReader {
            readers: self,
            reader: Some(reader),
            open: false,
            _place: place,
        })
    }

    async fn connect(&self) -> Result<Client, Error> {
        let fresh = |at: &Instant| at.elapsed() < FAILURE_SHARED;
        if let Some((_, why)) = self.failed().as_ref().filter(|(at, _)| fresh(at)) {
            return Err(Error::Unavailable(why.clone()));
        }
        let connected = self.address.connect().await;
        if let Err(Error::Unavailable(why)) = &connected {
            *self.failed() = Some((Instant::now(), why.clone()));
        }
        connected
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<(Instant, String)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PooledClient>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn query(
        &self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.acquire().await?.query(text, parameters).await
    }
}

impl PooledReader<'_> {
    /// Until [`PooledReader::close`], all queries see the snapshot of this moment.
    pub(super) async fn open(&mut self) -> Result<(), Error> {
        self.open = true;
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0")
            .await
    }

    pub(super) async fn close(&mut self) -> Result<(), Error> {
        self.run("COMMIT").await?;
        self.open = false;
        Ok(())
    }

    async fn run(&self, text: &str) -> Result<(), Error> {
        let reader = self.reader.as_ref().ok_or(Error::Closed)?;
        in_time(RESPONSE_TIMEOUT, reader.client.batch_execute(text)).await
    }

    pub(super) async fn query(
        &mut self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        // A cancelled query leaves the connection in an unknown state: it is not reused.
        let mut reader = self.reader.take().ok_or(Error::Closed)?;
        // A read of the whole database may take long.
        let timeout_after = if self.open { LONG } else { RESPONSE_TIMEOUT };
        let done = reader.query(text, parameters, timeout_after).await;
        self.reader = Some(reader).filter(|_| done.is_ok());
        if done.as_ref().is_err_and(is_silent) {
            // If one connection does not respond, neither do the idle ones.
            self.readers.idle().clear();
        }
        done
    }
}

impl Drop for PooledReader<'_> {
    fn drop(&mut self) {
        let reader = self.reader.take().filter(|_| !self.open);
        self.readers.idle().extend(reader);
    }
}

impl PooledClient {
    async fn query(
        &mut self,
        text: &'static str,
        parameters: Parameters<'_>,
        timeout_after: Duration,
    ) -> Result<Vec<Row>, Error> {
        let statement = if let Some(statement) = self.statements.get(text) {
            statement.clone()
        } else {
            let statement = in_time(RESPONSE_TIMEOUT, self.client.prepare(text)).await?;
            self.statements.insert(text, statement.clone());
            statement
        };
        in_time(timeout_after, self.client.query(&statement, parameters)).await
    }
}

/// Applies a timeout: a database behind a broken network never answers.
pub(super) async fn in_time<T>(
    timeout_after: Duration,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    let answered = timeout(timeout_after, asked).await;
    Ok(answered.map_err(|_elapsed| silent())??)
}
