//! Connections for reads: a few, lent to one at a time.
//!
//! Invariant: nobody waits for ever. A database that is silent lets go of whoever asks it, and of whoever waits behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::{Client, Row, Statement};

use super::address::DatabaseAddress;
use super::wire::{Parameters, RESPONSE_TIMEOUT, is_silent, silent};
use crate::Error;

/// In line for a connection. Statements take moments: whoever waits this long waits behind a database that is silent.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// For so long a database that could not be reached is not asked for another connection.
const FAILURE_SHARED: Duration = Duration::from_secs(1);

/// For one statement of whoever looks at everything.
const LONG: Duration = Duration::from_hours(1);

pub(super) struct PostgresReadPool {
    address: DatabaseAddress,
    idle: Mutex<Vec<PooledClient>>,
    places: Semaphore,
    /// When the database could not be reached, and why.
    failed: Mutex<Option<(Instant, String)>>,
}

struct PooledClient {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// A reader that goes back to the others when it is not needed any more.
pub(super) struct PooledReader<'r> {
    readers: &'r PostgresReadPool,
    reader: Option<PooledClient>,
    /// In the middle of a transaction: whoever went away then leaves it to nobody else.
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
    /// From here to [`PooledReader::close`] everything is seen as it is now, however long it takes.
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
        // Whoever gives up waiting leaves a connection in the middle of something: it is not lent again.
        let mut reader = self.reader.take().ok_or(Error::Closed)?;
        // Who looks at everything may take as long as it takes.
        let timeout_after = if self.open { LONG } else { RESPONSE_TIMEOUT };
        let done = reader.query(text, parameters, timeout_after).await;
        self.reader = Some(reader).filter(|_| done.is_ok());
        if done.as_ref().is_err_and(is_silent) {
            // What hangs for one hangs for all that were made before.
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

/// A database behind a broken network never answers.
pub(super) async fn in_time<T>(
    timeout_after: Duration,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    let answered = timeout(timeout_after, asked).await;
    Ok(answered.map_err(|_elapsed| silent())??)
}
