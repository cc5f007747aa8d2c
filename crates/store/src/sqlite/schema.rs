//! Opens a file: identifies it, sets its pragmas, runs its migrations.
//!
//! Invariant: a file of another program is left untouched, including its side files.

use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::checkpoint::PAGES_MAX;
use super::file_lock::FileLock;
use crate::Error;
use crate::failpoint::{self, Failpoint};

/// "CNSG", in the header of every Consign file.
const APPLICATION_ID: i32 = 0x434e_5347;
/// Its position in SQLite's file format, big-endian.
const APPLICATION_ID_AT: usize = 68;
/// The position of the number that says whether a writer has the file open, and so whether its log may hold more than the
/// file.
const OPEN_AT: usize = 60;

/// RETURNING needs 3.35; the WAL-reset corruption is fixed in 3.51.3.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

struct SqliteMigration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[SqliteMigration] = &[
    SqliteMigration {
        version: 1,
        name: "initial",
        sql: include_str!("migrations/0001_initial.sql"),
    },
    SqliteMigration {
        version: 2,
        name: "mesh",
        sql: include_str!("migrations/0002_mesh.sql"),
    },
    SqliteMigration {
        version: 3,
        name: "workers",
        sql: include_str!("migrations/0003_workers.sql"),
    },
];

/// The schema version that this program writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Nothing,
    Consign,
    IntentBus,
    OtherDatabase,
}

/// Reads the file without a lock and without creating side files.
///
/// Consign files are identified by their header alone. After a kill during a checkpoint the file is complete only
/// together with its log, and SQLite without the log would report it as damaged.
pub fn identify(path: &Path) -> Result<FileKind, Error> {
    let unreadable = |reason: String| Error::Open {
        path: path.to_owned(),
        reason,
    };
    match mark(path).map_err(|error| unreadable(error.to_string()))? {
        None => return Ok(FileKind::Nothing),
        Some(APPLICATION_ID) => return Ok(FileKind::Consign),
        Some(_) => {}
    }
    let open = |reason: rusqlite::Error| unreadable(reason.to_string());
    let connection = read_only(path, true).map_err(open)?;
    let tables: i64 = connection
        .query_row(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('intents', 'tester_keys', 'dead_letters')",
            [],
            |row| row.get(0),
        )
        .map_err(open)?;
    Ok(if tables == 3 {
        FileKind::IntentBus
    } else {
        FileKind::OtherDatabase
    })
}

/// Whether there is a file that is not empty and not one of Consign.
pub(super) fn is_foreign_database(path: &Path) -> Result<bool, Error> {
    let found = mark(path).map_err(|error| Error::Open {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(found.is_some_and(|mark| mark != APPLICATION_ID))
}

/// The application id in the header of a SQLite file; zero if it is not one. `None` if there is no file.
fn mark(path: &Path) -> std::io::Result<Option<i32>> {
    Ok(header(path)?.map(|header| number(&header, APPLICATION_ID_AT)))
}

/// Refuses a path whose log is beside another link to the file: the last writer was interrupted, and acknowledged commits
/// are in that log. Returns whether the last writer was interrupted.
fn refuse_without_log(path: &Path) -> Result<bool, Error> {
    let unfit = |reason: String| Error::Open {
        path: path.to_owned(),
        reason,
    };
    let found = header(path).map_err(|error| unfit(error.to_string()))?;
    if found.is_none_or(|header| number(&header, OPEN_AT) == 0) {
        return Ok(false);
    }
    let look = || -> std::io::Result<(u64, bool)> {
        let real = path.canonicalize()?;
        let mut log = real.clone().into_os_string();
        log.push("-wal");
        Ok((real.metadata()?.nlink(), Path::new(&log).try_exists()?))
    };
    match look().map_err(|error| unfit(error.to_string()))? {
        (links, false) if links > 1 => Err(unfit(format!(
            "it has {links} links, and the server that had it open last was interrupted; its log is beside the name by which that \
             server opened it, so start it by that name"
        ))),
        _ => Ok(true),
    }
}

/// Stores in the file itself whether its log may hold more than the file.
pub(super) fn note_open(connection: &Connection, open: bool) -> rusqlite::Result<()> {
    connection.pragma_update(None, "user_version", i32::from(open))
}

type FileHeader = [u8; APPLICATION_ID_AT + 4];

fn number(header: &FileHeader, at: usize) -> i32 {
    i32::from_be_bytes(header[at..at + 4].try_into().unwrap_or_default())
}

/// Zeros if the file is not a database. `None` if there is no file.
fn header(path: &Path) -> std::io::Result<Option<FileHeader>> {
    let mut header = [0; APPLICATION_ID_AT + 4];
    let mut file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Ok(Some([0; APPLICATION_ID_AT + 4]));
        }
        other => other?,
    }
    Ok(Some(header))
}

/// The writer's connection, migrated and ready, and the lock of the file.
pub(super) fn writer(path: &Path, now_us: i64) -> Result<(Connection, FileLock), Error> {
    let fresh = match identify(path)? {
        FileKind::IntentBus => {
            return Err(Error::IntentBusFile {
                path: path.to_owned(),
            });
        }
        FileKind::OtherDatabase => {
            return Err(Error::ForeignFile {
                path: path.to_owned(),
            });
        }
        FileKind::Nothing => true,
        FileKind::Consign => false,
    };
    let open = |reason: rusqlite::Error| Error::Open {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        let reason = format!("SQLite {} is too old", rusqlite::version());
        return Err(Error::Open {
            path: path.to_owned(),
            reason,
        });
    }
    if fresh {
        make_private(path).map_err(|reason| Error::Open {
            path: path.to_owned(),
            reason: reason.to_string(),
        })?;
    }
    // Before SQLite opens the file, and until after SQLite has closed it.
    let hold = FileLock::take(path)?;
    let cut_off = refuse_without_log(path)?;
    let mut connection = Connection::open(path).map_err(open)?;
    // Before the log exists, so that the mark is in the file itself and a kill cannot leave it in the log alone.
    if fresh {
        connection
            .pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(open)?;
    }
    settle_pragmas(&connection).map_err(open)?;
    apply(&mut connection, path, now_us, MIGRATIONS)?;
    if cut_off {
        note_open(&connection, false)?;
    }
    Ok((connection, hold))
}

/// Payloads are private; SQLite gives its side files the same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(|_| ())
}

/// A read-only connection of a process that does not have the file open yet.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    // Before SQLite creates a log by this name.
    refuse_without_log(path)?;
    Ok(read_only(path, false)?)
}

/// A reader's connection. With `immutable` the caller guarantees that no process writes, and no side file is touched.
pub(super) fn read_only(path: &Path, immutable: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let escaped = path
        .to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let uri = format!(
        "file:{escaped}{}",
        if immutable { "?immutable=1" } else { "" }
    );
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    plan_once(&connection)?;
    Ok(connection)
}

fn settle_pragmas(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    debug_assert_eq!(mode, "wal");
    // While the file is created and migrated, SQLite syncs the log at every commit.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "wal_autocheckpoint", PAGES_MAX)?;
    // The log shrinks again after a burst.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    plan_once(connection)
}

/// SQLite still syncs what a merge or a restart of the log depends on, and no longer syncs at a commit: the writer does
/// that itself before it answers.
pub(super) fn leave_syncs_to_us(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// A statement is planned once, when it is prepared. Without this setting SQLite examines bound values, such as a LIMIT,
/// and plans again each time one is bound, which costs more than the statement itself.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// The migrations that a Consign file still needs, by number and name. Changes nothing.
pub fn pending(path: &Path) -> Result<Vec<String>, Error> {
    let connection = reader(path)?;
    let found = if connection.table_exists(None, "migrations")? {
        version(&connection, path, MIGRATIONS)?
    } else {
        0
    };
    let missing = MIGRATIONS
        .iter()
        .filter(|migration| migration.version > found);
    Ok(missing
        .map(|migration| format!("{:04} {}", migration.version, migration.name))
        .collect())
}

/// Migrates the schema of a Consign file, and does nothing else.
pub fn migrate(path: &Path, now_us: i64) -> Result<(), Error> {
    let (connection, _hold) = writer(path, now_us)?;
    Ok(connection.close().map_err(|(_, error)| error)?)
}

/// The number of the last migration of the file. Refuses a newer schema, and one whose migrations have other names.
fn version(connection: &Connection, path: &Path, list: &[SqliteMigration]) -> Result<u32, Error> {
    let mut statement =
        connection.prepare("SELECT version, name FROM migrations ORDER BY version")?;
    let applied: Vec<(u32, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let is_other = |(version, name): &(u32, String)| {
        let mut list = list.iter();
        list.any(|migration| migration.version == *version && migration.name != name)
    };
    if applied.iter().any(is_other) {
        return Err(Error::DevelopmentSchema {
            place: path.display().to_string(),
        });
    }
    let found = applied.last().map_or(0, |(version, _)| *version);
    let known = list.last().map_or(0, |migration| migration.version);
    if found > known {
        return Err(Error::TooNew {
            path: path.to_owned(),
            found,
            known,
        });
    }
    Ok(found)
}

fn apply(
    connection: &mut Connection,
    path: &Path,
    now_us: i64,
    list: &[SqliteMigration],
) -> Result<(), Error> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT",
    )?;
    let found = version(&tx, path, list)?;
    for migration in list.iter().filter(|migration| migration.version > found) {
        tx.execute_batch(migration.sql)?;
        failpoint::hit(Failpoint::DuringMigration);
        tx.execute(
            "INSERT INTO migrations (version, name, applied_at) VALUES (?1, ?2, ?3)",
            (migration.version, migration.name, now_us),
        )?;
    }
    tx.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::rows;

    /// The migrations of this version and one after them.
    fn with_next(sql: &'static str) -> Vec<SqliteMigration> {
        let known = MIGRATIONS
            .iter()
            .map(|SqliteMigration { version, name, sql }| SqliteMigration {
                version: *version,
                name,
                sql,
            });
        let next = SqliteMigration {
            version: newest() + 1,
            name: "next",
            sql,
        };
        known.chain([next]).collect()
    }

    fn newest() -> u32 {
        u32::try_from(MIGRATIONS.len()).unwrap()
    }

    /// The versions up to the newest, and when they were applied.
    fn at(applied_at: i64) -> Vec<(u32, i64)> {
        (1..=newest())
            .map(|version| (version, applied_at))
            .collect()
    }

    fn applied(connection: &Connection) -> Vec<(u32, i64)> {
        let mut statement = connection
            .prepare("SELECT version, applied_at FROM migrations ORDER BY version")
            .unwrap();
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        found.unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn an_older_schema_gets_only_the_migrations_that_it_lacks() {
        let (mut connection, path) = (Connection::open_in_memory().unwrap(), Path::new("memory"));
        apply(&mut connection, path, 10, MIGRATIONS).unwrap();
        let list = with_next(
            "ALTER TABLE position ADD COLUMN note TEXT; UPDATE position SET note = 'kept'",
        );
        for now in [20, 30] {
            apply(&mut connection, path, now, &list).unwrap();
            let expected = [at(10), vec![(newest() + 1, 20)]].concat();
            assert_eq!(applied(&connection), expected);
        }
        let note: String = connection
            .query_row("SELECT note FROM position", [], |row| row.get(0))
            .unwrap();
        assert_eq!(note, "kept");
        let refused = apply(&mut connection, path, 40, MIGRATIONS).unwrap_err();
        assert!(matches!(
            refused,
            Error::TooNew { found, known, .. } if (found, known) == (newest() + 1, newest())
        ));
    }

    #[test]
    fn every_column_of_intents_is_in_the_table_of_columns() {
        let (mut connection, path) = (Connection::open_in_memory().unwrap(), Path::new("memory"));
        apply(&mut connection, path, 10, MIGRATIONS).unwrap();
        let mut statement = connection
            .prepare("SELECT name FROM pragma_table_info('intents')")
            .unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0));
        let mut names: Vec<String> = names.unwrap().collect::<Result<_, _>>().unwrap();
        let mut listed: Vec<&str> = column_list!(write name "").split(", ").collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let (mut connection, path) = (Connection::open_in_memory().unwrap(), Path::new("memory"));
        apply(&mut connection, path, 10, MIGRATIONS).unwrap();
        let mut list = with_next("ALTER TABLE position ADD COLUMN note TEXT");
        list.push(SqliteMigration {
            version: newest() + 2,
            name: "after next",
            sql: "CREATE TABLE later (x); SELECT missing FROM later",
        });
        apply(&mut connection, path, 20, &list).unwrap_err();
        assert_eq!(applied(&connection), at(10));
        assert!(!connection.column_exists(None, "position", "note").unwrap());
    }

    #[test]
    fn rows_of_the_second_version_have_no_worker() {
        let (mut connection, path) = (Connection::open_in_memory().unwrap(), Path::new("memory"));
        apply(&mut connection, path, 10, &MIGRATIONS[..2]).unwrap();
        let kept = "INSERT INTO intents (seq, id, profile, state, cause, shelf, wake_at, priority, run_at, attempts, \
            attempts_max, backoff_us, created_at, expires_at, namespace, goal, owner, public, holder, payload) \
            VALUES (1, zeroblob(16), 0, 3, 0, 2, 9, 100, 1, 1, 3, 1, 1, 9, 'default', 'g', 'main', 0, 'main', '{}'); \
            INSERT INTO facts (seq, intent, face, owner, at, verb, to_state, cause, attempt, actor) \
            VALUES (1, 1, 0, 'main', 1, 2, 3, 0, 1, 'main')";
        connection.execute_batch(kept).unwrap();
        apply(&mut connection, path, 20, MIGRATIONS).unwrap();
        let sql = concat!("SELECT ", column_list!(read name ""), " FROM intents");
        let intent = connection.query_row(sql, [], rows::intent).unwrap();
        assert_eq!(
            (intent.holder.as_deref(), intent.worker),
            (Some("main"), None)
        );
        let sql = concat!("SELECT ", rows::fact_columns!(), " FROM facts");
        let fact = connection.query_row(sql, [], rows::fact).unwrap();
        assert_eq!((fact.actor.as_deref(), fact.worker), (Some("main"), None));
    }

    #[test]
    fn cm_041_cm_042_a_file_of_the_first_version_gets_the_tables_of_the_mesh() {
        let (mut connection, path) = (Connection::open_in_memory().unwrap(), Path::new("memory"));
        apply(&mut connection, path, 10, &MIGRATIONS[..1]).unwrap();
        let kept = "INSERT INTO once VALUES (1, 'alice', 'a', x'00', NULL, '', 7)";
        connection.execute_batch(kept).unwrap();
        apply(&mut connection, path, 20, MIGRATIONS).unwrap();
        assert_eq!(applied(&connection)[..2], [(1, 10), (2, 20)]);
        let until: i64 = connection
            .query_row("SELECT until FROM once", [], |row| row.get(0))
            .unwrap();
        assert_eq!(until, 7);
        let columns = |table: &str| {
            let sql = "SELECT group_concat(name, ' ') FROM pragma_table_info(?1)";
            let names = connection.query_row(sql, [table], |row| row.get::<_, String>(0));
            names.unwrap()
        };
        assert_eq!(
            columns("client_message_dedupe"),
            "mesh_id client_message_id broker_message_id request_fingerprint destination_kind destination_ref \
             first_seen_at expires_at history_available"
        );
        for view in [
            "topic_message",
            "message_queue",
            "message_history",
            "delivery_queue",
            "mention_index",
        ] {
            let rows = format!("SELECT count(*) FROM {view}");
            let rows: i64 = connection.query_row(&rows, [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 0, "{view}");
        }
        let unknown = "INSERT INTO client_message_dedupe (mesh_id, client_message_id, broker_message_id, \
            request_fingerprint, destination_kind, destination_ref) VALUES ('m', 'c', 'b', x'00', 'nowhere', '')";
        connection.execute_batch(unknown).unwrap_err();
        connection
            .execute_batch(&unknown.replace("nowhere", "topic"))
            .unwrap();
    }
}
