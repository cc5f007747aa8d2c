//! One connection of a writer, driven by the thread that uses it: no hop between threads for a statement.
//!
//! Invariant: after an error the connection is either usable or given up; a new one is made when it is needed next.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use super::address::{Address, Connected};
use crate::Error;

/// How long a statement may take before the connection counts as lost: more than the server itself allows.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

/// Bounds of [`Session::reserve`].
const RESERVE_MIN: Duration = Duration::from_secs(4);
const RESERVE_MAX: Duration = Duration::from_mins(5);
/// How long a request waits to see whether an abandoned connection has ended.
const GLANCE: Duration = Duration::from_millis(50);

pub(super) struct Session {
    address: Address,
    runtime: Runtime,
    connected: Option<Connected>,
    /// A connection that was given up in the middle of a commit, and until when it is waited for.
    abandoned: Option<(JoinHandle<()>, Instant)>,
    /// How long the next one is waited for: longer each time, so that a server that waits for its standby for an hour is
    /// not given ever more connections, and a wire that hangs once is soon forgotten.
    reserve: Duration,
    statements: HashMap<&'static str, Statement>,
    /// An answer is missing: whatever comes next on this connection would be taken for it.
    silent: Cell<bool>,
}

/// What a statement is given.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

impl Session {
    pub(super) fn new(address: Address) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            address,
            runtime,
            connected: None,
            abandoned: None,
            reserve: RESERVE_MIN,
            statements: HashMap::new(),
            silent: Cell::new(false),
        })
    }

    /// Whether the connection can be used for another statement.
    pub(super) fn is_usable(&self) -> bool {
        let connected = self.connected.as_ref();
        !self.silent.get() && connected.is_some_and(|connected| !connected.client.is_closed())
    }

    /// Makes a connection if there is none, and all statements that `texts` name.
    pub(super) fn ready(&mut self, texts: &[&'static str]) -> Result<(), Error> {
        if !self.is_usable() {
            self.give_up();
            self.await_abandoned()?;
            let connecting = self.address.connect_hearing();
            self.connected = Some(self.runtime.block_on(connecting)?);
        }
        for text in texts {
            self.prepare(text)?;
        }
        Ok(())
    }

    /// Forgets the connection; the server rolls back what was open on it.
    pub(super) fn give_up(&mut self) {
        self.connected = None;
        self.statements.clear();
        self.silent.set(false);
    }

    fn prepare(&mut self, text: &'static str) -> Result<(), Error> {
        if !self.statements.contains_key(text) {
            let statement = self.wait(|link| link.client.prepare(text))?;
            self.statements.insert(text, statement);
        }
        Ok(())
    }

    /// Waits for statements, which may be several at once: they are sent together.
    pub(super) fn wait<'s, F, T>(&'s self, work: impl FnOnce(Link<'s>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let connected = self.connected.as_ref().ok_or(Error::Closed)?;
        let link = Link {
            client: &connected.client,
            statements: &self.statements,
        };
        let done = self
            .runtime
            .block_on(async { timeout(PATIENCE, work(link)).await });
        match done {
            Ok(done) => done.map_err(|error| {
                self.silent.set(self.silent.get() || is_over(&error));
                error.into()
            }),
            Err(_elapsed) => {
                self.silent.set(true);
                Err(silent())
            }
        }
    }

    pub(super) fn query(
        &mut self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.prepare(text)?;
        self.wait(|link| link.client.query(link.statement(text), parameters))
    }

    /// A statement that is rare: planned for what the tables hold now.
    pub(super) fn query_anew(
        &self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.wait(|link| link.client.query(text, parameters))
    }

    pub(super) fn execute_anew(
        &self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        self.wait(|link| link.client.execute(text, parameters))
    }

    /// Asks all questions at once. Of several errors the first is told: the others follow from it.
    pub(super) fn query_all(&self, asked: &[Asked<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        self.wait(|link| {
            in_order(asked.iter().map(move |asked| {
                link.client
                    .query(link.statement(asked.text), &asked.parameters)
            }))
        })
    }

    /// Carries out all statements at once, and says of each how many rows it wrote.
    pub(super) fn execute_all(&self, asked: &[Asked<'_>]) -> Result<Vec<u64>, Error> {
        self.wait(|link| {
            in_order(asked.iter().map(move |asked| {
                link.client
                    .execute(link.statement(asked.text), &asked.parameters)
            }))
        })
    }

    /// Commits. A server that stops waiting for its standby says yes with a warning: it is there, and may be lost with this
    /// one machine.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        while self.warning().is_some() {}
        self.run("COMMIT")?;
        if let Some(warning) = self.warning() {
            return Err(Error::Unavailable(warning));
        }
        self.reserve = RESERVE_MIN;
        Ok(())
    }

    fn warning(&mut self) -> Option<String> {
        let heard = &mut self.connected.as_mut()?.heard;
        while let Ok(message) = heard.try_recv() {
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity() == Some(Severity::Warning)
            {
                return Some(notice.message().to_owned());
            }
        }
        None
    }

    /// Gives up the connection in the middle of a commit.
    pub(super) fn abandon(&mut self) {
        let until = Instant::now() + self.reserve;
        self.reserve = (self.reserve * 2).min(RESERVE_MAX);
        let connected = self.connected.take();
        self.abandoned = connected.map(|connected| (connected.carrying, until));
        self.give_up();
    }

    fn await_abandoned(&mut self) -> Result<(), Error> {
        let Some((carrying, until)) = &mut self.abandoned else {
            return Ok(());
        };
        let ended = self
            .runtime
            .block_on(async { timeout(GLANCE, carrying).await });
        if ended.is_err() && Instant::now() < *until {
            let waits = "a commit from before still waits in the database, perhaps for a standby";
            return Err(Error::Unavailable(waits.to_owned()));
        }
        self.abandoned = None;
        Ok(())
    }

    /// A statement without parameters.
    pub(super) fn run(&self, text: &str) -> Result<(), Error> {
        self.wait(|link| link.client.batch_execute(text))
    }
}

/// Whether a server that says this takes no more writes on this connection: it ends, or is no primary any more.
fn is_over(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::READ_ONLY_SQL_TRANSACTION || code.code().starts_with("57P")
    })
}

pub(super) fn silent() -> Error {
    Error::Unavailable("the database did not answer in time".to_owned())
}

/// A statement that was made ready, with what it is given.
pub(super) struct Asked<'a> {
    pub(super) text: &'static str,
    pub(super) parameters: Vec<&'a (dyn ToSql + Sync)>,
}

/// The connection, for statements that were made ready.
#[derive(Clone, Copy)]
pub(super) struct Link<'s> {
    client: &'s Client,
    statements: &'s HashMap<&'static str, Statement>,
}

impl<'s> Link<'s> {
    fn statement(self, text: &'static str) -> &'s Statement {
        self.statements
            .get(text)
            .expect("a statement is made ready before it is used")
    }
}

/// Waits for all of them. Each is sent when it is first polled, so they leave one behind the other without a wait in
/// between.
async fn in_order<T, E, F>(futures: impl Iterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, done) in &mut futures {
            if done.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(result) => *done = Some(result),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}
