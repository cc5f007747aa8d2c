//! A directory for one test with servers and commands in it, and the requests that many tests send.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use consign_testkit::ledger::Backend;
use consign_testkit::postgres::{self, Database};
use consign_testkit::process::{self, Http, Options, Reply, Server};
use serde_json::{Value, json};

/// Longer than any operation in these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_consign"))
}

/// A directory for one test, with the data directory of a server in it.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    /// The database of the ledger, if it is not a file in the directory.
    pub(crate) database: Option<Database>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let database = (crate::backend() == Backend::Postgres).then(empty_database);
        Self { folder, database }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn options(&self) -> Options {
        self.options_with(self.data())
    }

    /// A server with its own data directory, on the same database if there is one.
    pub(crate) fn options_with(&self, data: PathBuf) -> Options {
        let options = Options::new(binary(), data);
        match &self.database {
            Some(database) => options.arg("--store").arg(&database.url()),
            None => options,
        }
    }

    pub(crate) fn start(&self) -> Server {
        start(&self.options())
    }

    /// Asks the database of the ledger: a line for each row, with bars between the columns.
    pub(crate) fn sql(&self, text: &str) -> Vec<String> {
        if let Some(database) = &self.database {
            let text = format!("SET search_path = consign; {text}");
            let shown = database.sql(&text).expect("the database answers");
            return shown.lines().map(str::to_owned).collect();
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let file = self.data().join("consign.db");
        let ledger = rusqlite::Connection::open_with_flags(file, flags).expect("a database");
        let mut query = ledger.prepare(text).expect("a query");
        let columns = query.column_count();
        let rows = query.query_map([], |row| {
            let shown = (0..columns).map(|column| {
                let value: rusqlite::types::Value = row.get(column)?;
                Ok(match value {
                    rusqlite::types::Value::Null => String::new(),
                    rusqlite::types::Value::Integer(number) => number.to_string(),
                    rusqlite::types::Value::Text(text) => text,
                    rusqlite::types::Value::Real(number) => number.to_string(),
                    rusqlite::types::Value::Blob(bytes) => format!("{bytes:?}"),
                })
            });
            let shown: rusqlite::Result<Vec<String>> = shown.collect();
            Ok(shown?.join("|"))
        });
        let rows = rows.expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    }

    /// Runs a command against the data directory of this place.
    pub(crate) fn consign(&self, args: &[&str]) -> Output {
        self.consign_with(args, &[])
    }

    pub(crate) fn consign_with(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        process::run(self.command(args, env), PATIENCE).expect("the command ends in time")
    }

    /// The same, not yet run.
    pub(crate) fn command(&self, args: &[&str], env: &[(&str, &str)]) -> std::process::Command {
        let mut command = process::cleaned(&binary());
        command
            .args(args)
            .env("CONSIGN_DATA", self.data())
            .envs(env.iter().copied())
            .stdin(std::process::Stdio::null());
        command
    }
}

/// An empty database, in which the first server creates its tables.
fn empty_database() -> Database {
    let cluster = postgres::shared().expect("PostgreSQL starts");
    let database = cluster.database("consign_empty", |_| {});
    database.expect("an empty database can be made")
}

pub(crate) fn start(options: &Options) -> Server {
    Server::start(options).expect("the server starts")
}

/// Starts a server that must refuse to start. Returns its exit code and its error output.
pub(crate) fn refusal(options: &Options) -> (i32, String) {
    let output = process::serve_until_exit(options, PATIENCE).expect("the server ends by itself");
    (code(&output), text(&output.stderr))
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a command with `--json`.
pub(crate) fn printed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

pub(crate) fn main_client(server: &Server) -> Http {
    server.main_client().expect("the server made its main key")
}

pub(crate) fn publish(http: &mut Http, goal: &str) -> Reply {
    let body = json!({"goal": goal, "payload": {"n": 1}});
    http.post("/intent", &body).expect("the server answers")
}

/// Publishes and returns the id.
pub(crate) fn published(http: &mut Http, goal: &str) -> String {
    let reply = publish(http, goal);
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

pub(crate) fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn get(http: &mut Http, path: &str) -> Reply {
    http.get(path).expect("the server answers")
}

pub(crate) fn status_of(http: &mut Http, id: &str) -> String {
    word(&get(http, &format!("/status/{id}")).json()["status"])
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path).expect("the file is there");
    metadata.permissions().mode() & 0o7777
}

/// Every response has these headers.
pub(crate) fn assert_five_headers(reply: &Reply) {
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("x-intent-version", "2.1"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name} in {reply:?}");
    }
}
