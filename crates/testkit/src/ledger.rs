//! A ledger for one test on a chosen backend: empty, not shared, removed with its handle.
//!
//! Tests create their ledger here, so that one set of tests runs on every backend.

mod obstacles;
mod other_runtime;
mod reads;

use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock, mpsc};

use consign_store::memory::Memory;
use consign_store::postgres::{self, Postgres};
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock, SharedStore};
use tokio::runtime::{Builder, Runtime};

use crate::postgres::{Database, shared};
pub use obstacles::{Claims, Obstacles};
use other_runtime::OtherRuntimeStore;
pub use reads::{ReadCounts, Reads};

/// The backend of a test's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Memory,
    /// In a file of its own.
    Sqlite,
    /// In a database of its own, on the cluster that all tests share.
    Postgres,
}

impl Backend {
    /// The backend of this run, from the variable `CONSIGN_TEST_LEDGER`: `sqlite` (the default), `postgres` or `memory`.
    /// Test binaries are compiled once and run once for each.
    ///
    /// # Panics
    ///
    /// If the variable has another value.
    pub fn selected() -> Self {
        match std::env::var("CONSIGN_TEST_LEDGER").as_deref() {
            Err(_) | Ok("sqlite") => Self::Sqlite,
            Ok("postgres") => Self::Postgres,
            Ok("memory") => Self::Memory,
            Ok(other) => panic!("CONSIGN_TEST_LEDGER={other} is not sqlite, postgres or memory"),
        }
    }
}

/// A new ledger, and the resources that it needs.
pub struct Ledger {
    pub store: SharedStore,
    location: DatabaseLocation,
    _kept: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

/// Where it can be queried directly.
enum DatabaseLocation {
    Nowhere,
    File(PathBuf),
    Database(String),
}

/// Prints rows like `psql`: a line each, with bars between the columns.
const ASK_SQLITE: &str = "import sqlite3, sys\n\
    rows = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True).execute(sys.argv[2])\n\
    for row in rows: print('|'.join('' if cell is None else str(cell) for cell in row))";

/// The same for one statement that writes.
const EDIT_SQLITE: &str = "import sqlite3, sys\n\
    with sqlite3.connect(sys.argv[1]) as file: file.execute(sys.argv[2])";

impl Ledger {
    /// Queries the database directly: a line for each row, with bars between the columns.
    ///
    /// # Panics
    ///
    /// If the query fails.
    #[must_use]
    pub fn sql(&self, text: &str) -> Vec<String> {
        self.run(ASK_SQLITE, text)
    }

    /// Changes rows of the database, as an edit by hand does.
    ///
    /// # Panics
    ///
    /// If the change fails.
    pub fn edit(&self, text: &str) {
        self.run(EDIT_SQLITE, text);
    }

    fn run(&self, of_sqlite: &str, text: &str) -> Vec<String> {
        let mut asking = match &self.location {
            DatabaseLocation::Nowhere => panic!("the model has no database"),
            DatabaseLocation::File(path) => {
                let mut python = Command::new("python3");
                python.args(["-c", of_sqlite]).arg(path);
                python
            }
            DatabaseLocation::Database(url) => {
                let mut psql = Command::new("psql");
                psql.args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align"]);
                psql.args(["--set", "ON_ERROR_STOP=1", url, "--command"]);
                psql.env("PGOPTIONS", "--search_path=consign");
                psql
            }
        };
        let answer = asking.arg(text).output().expect("the program is installed");
        let told = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{told}");
        let text = String::from_utf8_lossy(&answer.stdout);
        text.lines().map(str::to_owned).collect()
    }

    /// An empty ledger. Blocks, and may be called in a runtime with paused time.
    ///
    /// # Panics
    ///
    /// If the ledger cannot be created.
    #[must_use]
    pub fn new(backend: Backend, clock: Arc<dyn Clock>) -> Self {
        match backend {
            Backend::Memory => {
                Self::of(Arc::new(Memory::new(clock)), DatabaseLocation::Nowhere, ())
            }
            Backend::Sqlite => {
                let folder = tempfile::tempdir().expect("a temporary folder can be made");
                let options = sqlite::Options {
                    path: folder.path().join("ledger.db"),
                    clock,
                    queue_max: sqlite::QUEUE_REQUESTS_MAX,
                };
                let store = Sqlite::open(options).expect("an empty folder takes a ledger");
                let location = DatabaseLocation::File(folder.path().join("ledger.db"));
                Self::of(Arc::new(store), location, folder)
            }
            Backend::Postgres => {
                let database = database(&clock);
                let store = open(&database.url(), clock);
                let location = DatabaseLocation::Database(database.url());
                let store = Arc::new(OtherRuntimeStore::new(store, runtime().handle()));
                Self::of(store, location, database)
            }
        }
    }

    /// A store of another node on the same ledger. `None` if the ledger belongs to one process.
    ///
    /// # Panics
    ///
    /// If the database cannot be opened.
    #[must_use]
    pub fn other_node(&self, clock: Arc<dyn Clock>) -> Option<SharedStore> {
        match &self.location {
            DatabaseLocation::Nowhere | DatabaseLocation::File(_) => None,
            DatabaseLocation::Database(url) => {
                let store = open_as(url, clock, 2);
                Some(Arc::new(OtherRuntimeStore::new(store, runtime().handle())))
            }
        }
    }

    fn of(store: SharedStore, location: DatabaseLocation, kept: impl Any + Send + Sync) -> Self {
        Self {
            store,
            location,
            _kept: Box::new(kept),
        }
    }
}

/// A database with an empty ledger, for nodes that a test opens itself.
///
/// # Panics
///
/// If PostgreSQL cannot be started.
#[must_use]
pub fn database(clock: &Arc<dyn Clock>) -> Database {
    let cluster = shared().expect("PostgreSQL starts");
    let fill = |url: &str| drop(open(url, Arc::clone(clock)));
    let database = cluster.database(postgres::TEMPLATE, fill);
    database.expect("the template can be copied")
}

fn open(url: &str, clock: Arc<dyn Clock>) -> Postgres {
    open_as(url, clock, 1)
}

fn open_as(url: &str, clock: Arc<dyn Clock>, node: i64) -> Postgres {
    let options = postgres::Options {
        address: postgres::DatabaseAddress::parse(url, None)
            .expect("the cluster's address can be read"),
        clock,
        queue_max: postgres::QUEUE_REQUESTS_MAX,
        writers: postgres::WRITERS_DEFAULT,
        node,
        hold: None,
    };
    // Not `block_on`: the caller may be in a runtime, which does not allow it.
    let (sender, opened) = mpsc::channel();
    runtime().spawn(async move { sender.send(Postgres::open(options).await) });
    let opened = opened.recv().expect("opening ends with an answer");
    opened.expect("a new database takes a ledger")
}

/// Runs the connections of all tests in this process, in real time.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("test-ledger")
            .enable_all()
            .build()
            .expect("a runtime can be made")
    })
}

/// Checks that the root `main.rs` of the test binary in `folder` lists every other file there as a module. A missing one
/// would never run.
///
/// # Panics
///
/// If one is left out, or the folder cannot be read.
pub fn assert_all_listed(folder: &str) {
    let folder = Path::new(folder);
    let mut written = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_stem().and_then(OsStr::to_str);
        written.extend(name.filter(|name| *name != "main").map(str::to_owned));
    }
    let text = fs::read_to_string(folder.join("main.rs")).expect("a root is a file");
    let lines = text.lines().filter_map(|line| line.strip_prefix("mod "));
    let listed: BTreeSet<String> = lines
        .map(|name| name.trim_end_matches(';').to_owned())
        .collect();
    assert_eq!(listed, written);
}
