//! Properties of the SQLite backend alone: its file, its settings, its single writer.

mod foreign;
mod import;
mod import_beam;
mod mesh;
mod nonces;
mod outbox;
mod positions;
mod reopen;
mod search;
mod settings;
mod taken;
mod trouble;

use std::path::PathBuf;
use std::sync::Arc;

use consign_store::conformance::{self, ManualClock};
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Error, SharedStore};
use consign_testkit::plants;
use rusqlite::Connection;
use tempfile::TempDir;

/// A file in a temporary directory, and the store on it.
pub(crate) struct World {
    folder: Arc<TempDir>,
    clock: Arc<ManualClock>,
    store: Arc<Sqlite>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_queue(QUEUE_REQUESTS_MAX)
    }

    fn with_queue(queue_max: usize) -> Self {
        plants::from_environment();
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::default());
        let store = open(folder.path().join("ledger.db"), &clock, queue_max).unwrap();
        Self {
            folder,
            clock,
            store: Arc::new(store),
        }
    }

    /// The same store as a world of the conformance suite.
    pub(crate) fn shared(&self) -> conformance::World {
        let store: SharedStore = self.store.clone();
        conformance::World::new(store, self.clock.clone(), Arc::clone(&self.folder))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    /// Closes the store and opens its file again.
    fn reopened(self) -> Self {
        self.store.close();
        let store = open(self.path(), &self.clock, QUEUE_REQUESTS_MAX).unwrap();
        Self {
            store: Arc::new(store),
            ..self
        }
    }

    /// A second connection, for statements that the store never executes.
    pub(crate) fn meddler(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn open(path: PathBuf, clock: &Arc<ManualClock>, queue_max: usize) -> Result<Sqlite, Error> {
    Sqlite::open(Options {
        path,
        clock: clock.clone(),
        queue_max,
    })
}
