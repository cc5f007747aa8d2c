//! Reading a file of the original Intent Bus.

use consign_store::Error;
use consign_store::sqlite::{ForeignIntent, ForeignRows, IntentBusFile, UnreadableRow};
use rusqlite::Connection;

/// The tables of the original, as its own server creates them.
pub(super) const INTENT_BUS_SCHEMA: &str = "
CREATE TABLE intents (id TEXT PRIMARY KEY, namespace TEXT, goal TEXT, payload TEXT, status TEXT, priority INTEGER,
  target_worker TEXT, required_capability TEXT, created_at REAL, expires_at REAL, run_at REAL, claimed_at REAL,
  claim_expires_at REAL, claimed_by TEXT, claim_token TEXT, publisher TEXT, claim_attempts INTEGER,
  max_attempts INTEGER, backoff_base REAL, visibility TEXT, last_error TEXT, failed_at REAL, result TEXT,
  result_type TEXT, completed_at REAL);
CREATE TABLE tester_keys (api_key TEXT PRIMARY KEY, owner TEXT, total_requests INTEGER, created_at REAL);
CREATE TABLE rate_limits (identifier TEXT PRIMARY KEY, count INTEGER, window REAL);
CREATE TABLE idempotency_keys (api_key TEXT, key TEXT, body_hash TEXT, response TEXT, status_code INTEGER,
  created_at REAL, PRIMARY KEY (api_key, key));
CREATE TABLE request_nonces (api_key TEXT, nonce TEXT, created_at REAL, PRIMARY KEY (api_key, nonce));
CREATE TABLE store (key TEXT PRIMARY KEY, value TEXT, expires_at REAL);
CREATE TABLE dead_letters (id INTEGER PRIMARY KEY AUTOINCREMENT, intent_id TEXT UNIQUE, namespace TEXT, goal TEXT,
  payload TEXT, publisher TEXT, visibility TEXT, attempts INTEGER, reason TEXT, created_at REAL);";

const ROWS: &str = r#"
INSERT INTO intents VALUES ('aa', 'default', 'greet', '{"n": 1}', 'open', 100, NULL, NULL, 1.5, 86401.5, 1.5, NULL,
  NULL, NULL, NULL, 'key-1', 0, 3, 5.0, 'private', NULL, NULL, NULL, NULL, NULL);
INSERT INTO intents VALUES ('bb', 'ns', 'wave', '"x"', 'claimed', 7, 'w1', 'gpu', 2.0, 86402.0, 2.0, 3.25, 63.25,
  'key-2', 'tok', 'key-1', 1, 20, 1.0, 'public', 'once', 2.5, NULL, NULL, NULL);
INSERT INTO intents VALUES ('cc', 'default', 'greet', 'null', 'dead', 0, NULL, NULL, 4.0, 86404.0, 4.0, 5.0, 65.0,
  'key-2', 'tok', 'key-1', 3, 3, 5.0, 'private', 'broken', 6.0, '{"r":1}', 'json', 7.0);
INSERT INTO dead_letters (intent_id, namespace, goal, payload, publisher, visibility, attempts, reason, created_at)
  VALUES ('cc', 'default', 'greet', 'null', 'key-1', 'private', 3, 'broken', 6.5);
INSERT INTO tester_keys VALUES ('tk_1', 'someone', 12, 9.0), ('tk_2', NULL, NULL, NULL);
INSERT INTO store VALUES ('key-1:colour', 'red', 700.0);
INSERT INTO idempotency_keys VALUES ('key-1', 'k', 'h', '{}', 201, 1.0);
INSERT INTO request_nonces VALUES ('key-1', 'n', 1.0), ('key-1', 'm', 1.0);
"#;

/// A file with rows. While the connection is open, its log stays next to it.
fn made(folder: &tempfile::TempDir) -> (std::path::PathBuf, Connection) {
    let path = folder.path().join("infrastructure.db");
    let bus = Connection::open(&path).unwrap();
    bus.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    bus.execute_batch(INTENT_BUS_SCHEMA).unwrap();
    bus.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    bus.execute_batch(ROWS).unwrap();
    (path, bus)
}

/// The rows of one page, all of which can be read.
fn page(file: &IntentBusFile, from: i64, limit: u32) -> Vec<ForeignIntent> {
    let page = file.intents(from, limit).unwrap();
    page.into_iter().map(Result::unwrap).collect()
}

fn unreadable(rowid: i64, id: Option<&str>, reason: &str) -> UnreadableRow {
    UnreadableRow {
        rowid,
        id: id.map(str::to_owned),
        reason: reason.to_owned(),
    }
}

fn reads_all(file: &IntentBusFile) {
    let expected = ForeignRows {
        intents: 3,
        dead_letters: 1,
        tester_keys: 2,
        kv_entries: 1,
        idempotency_keys: 1,
        nonces: 2,
    };
    assert_eq!(file.rows().unwrap(), expected);
    let first = page(file, i64::MIN, 2);
    assert_eq!(first.len(), 2);
    assert_eq!(
        (first[0].id.as_str(), first[0].status.as_str()),
        ("aa", "open")
    );
    assert_eq!(first[0].payload, r#"{"n": 1}"#);
    assert_eq!((first[0].claimed_at, &first[0].claimed_by), (None, &None));
    assert_eq!(
        (first[1].claimed_at, first[1].claim_expires_at),
        (Some(3.25), Some(63.25))
    );
    assert_eq!(first[1].target_worker.as_deref(), Some("w1"));
    assert_eq!(first[1].required_capability.as_deref(), Some("gpu"));
    assert_eq!((first[1].priority, first[1].max_attempts), (7, 20));
    let rest = page(file, first[1].rowid + 1, 2);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].result.as_deref(), Some(r#"{"r":1}"#));
    assert_eq!(
        (rest[0].failed_at, rest[0].completed_at),
        (Some(6.0), Some(7.0))
    );
    assert_eq!(
        file.dead_reason("cc").unwrap(),
        Some(("broken".to_owned(), Some(6.5)))
    );
    assert_eq!(file.dead_reason("aa").unwrap(), None);
    let keys: Vec<_> = file.keys().unwrap().into_iter().flatten().collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        (keys[0].api_key.as_str(), keys[0].total_requests),
        ("tk_1", 12)
    );
    assert_eq!((keys[1].owner.as_str(), keys[1].total_requests), ("", 0));
    let kv: Vec<_> = file.kv().unwrap().into_iter().flatten().collect();
    assert_eq!(kv.len(), 1);
    assert_eq!(
        (kv[0].key.as_str(), kv[0].value.as_str()),
        ("key-1:colour", "red")
    );
}

#[test]
fn a_closed_file_is_read_without_leaving_anything_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bus) = made(&folder);
    drop(bus);
    let bytes = std::fs::read(&path).unwrap();
    reads_all(&IntentBusFile::open(&path).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn rows_that_are_still_in_the_log_are_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _bus) = made(&folder);
    reads_all(&IntentBusFile::open(&path).unwrap());
}

#[test]
fn a_cell_that_cannot_be_read_costs_its_row_alone() {
    for (column, value, reason) in [
        ("namespace", "NULL", "its namespace is null"),
        ("payload", "x'00ff'", "its payload is a blob"),
        ("goal", "CAST(x'ff' AS TEXT)", "its goal is not UTF-8"),
        ("priority", "'high'", "its priority is not a whole number"),
        ("priority", "1.5", "its priority is not a whole number"),
        (
            "max_attempts",
            "1e300",
            "its max_attempts is not a whole number",
        ),
        ("created_at", "'soon'", "its created_at is not a number"),
        ("run_at", "9e999", "its run_at is not a number"),
        ("run_at", "'inf'", "its run_at is not a number"),
        ("claimed_at", "x'01'", "its claimed_at is not a number"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (path, bus) = made(&folder);
        bus.execute_batch(&format!(
            "UPDATE intents SET {column} = {value} WHERE id = 'bb'"
        ))
        .unwrap();
        let read = IntentBusFile::open(&path)
            .unwrap()
            .intents(i64::MIN, 9)
            .unwrap();
        assert!(read[0].is_ok() && read[2].is_ok(), "{column} = {value}");
        assert_eq!(read[1], Err(unreadable(2, Some("bb"), reason)));
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, bus) = made(&folder);
    bus.execute_batch("UPDATE intents SET id = NULL WHERE id = 'bb'")
        .unwrap();
    bus.execute_batch("UPDATE dead_letters SET reason = x'00', created_at = 'then'")
        .unwrap();
    let file = IntentBusFile::open(&path).unwrap();
    let read = file.intents(i64::MIN, 9).unwrap();
    assert_eq!(read[1], Err(unreadable(2, None, "its id is null")));
    assert_eq!(
        file.dead_reason("cc").unwrap(),
        Some(("dead letter: its reason is a blob".to_owned(), None))
    );
}

#[test]
fn a_number_is_read_however_it_is_stored_if_it_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("infrastructure.db");
    let bus = Connection::open(&path).unwrap();
    // Without declared types SQLite converts no values.
    let typeless = [" TEXT", " INTEGER", " REAL"]
        .iter()
        .fold(INTENT_BUS_SCHEMA.to_owned(), |schema, kind| {
            schema.replace(kind, "")
        })
        .replace("id PRIMARY KEY AUTOINCREMENT", "id INTEGER PRIMARY KEY");
    bus.execute_batch(&typeless).unwrap();
    bus.execute_batch(ROWS).unwrap();
    bus.execute_batch(
        "UPDATE intents SET priority = 7.0, max_attempts = '20', claim_attempts = '2.0', created_at = 2,
           run_at = '2.5', payload = 12 WHERE id = 'aa'",
    )
    .unwrap();
    drop(bus);
    let row = page(&IntentBusFile::open(&path).unwrap(), i64::MIN, 1).remove(0);
    assert_eq!(
        (row.priority, row.max_attempts, row.claim_attempts),
        (7, 20, 2)
    );
    assert!((row.created_at - 2.0).abs() < f64::EPSILON);
    assert!((row.run_at - 2.5).abs() < f64::EPSILON);
    assert_eq!(row.payload, "12");
}

#[test]
fn rows_are_found_at_every_row_id() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bus) = made(&folder);
    for (id, rowid) in [("aa", i64::MIN), ("bb", 0), ("cc", i64::MAX)] {
        bus.execute("UPDATE intents SET rowid = ?1 WHERE id = ?2", (rowid, id))
            .unwrap();
    }
    let file = IntentBusFile::open(&path).unwrap();
    let ids =
        |from| -> Vec<String> { page(&file, from, 9).into_iter().map(|row| row.id).collect() };
    assert_eq!(ids(i64::MIN), ["aa", "bb", "cc"]);
    assert_eq!(ids(i64::MIN + 1), ["bb", "cc"]);
    assert_eq!(ids(i64::MAX), ["cc"]);
}

#[test]
fn an_unreadable_key_or_value_is_named_by_its_row_and_never_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bus) = made(&folder);
    bus.execute_batch(
        "UPDATE tester_keys SET total_requests = 'many' WHERE api_key = 'tk_1';
         INSERT INTO tester_keys VALUES (NULL, 'nobody', 0, 1.0);
         INSERT INTO store VALUES ('key-1:shape', x'01', 700.0), ('key-1:size', 'xl', NULL);",
    )
    .unwrap();
    let file = IntentBusFile::open(&path).unwrap();
    let keys: Vec<_> = file
        .keys()
        .unwrap()
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert_eq!(
        keys,
        [
            unreadable(3, None, "its api_key is null"),
            unreadable(1, None, "its total_requests is not a whole number"),
        ]
    );
    let kv: Vec<_> = file
        .kv()
        .unwrap()
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert_eq!(
        kv,
        [
            unreadable(2, None, "its value is a blob"),
            unreadable(3, None, "its expires_at is null"),
        ]
    );
}

#[test]
fn what_is_no_file_of_the_intent_bus_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    let says = |path: &std::path::Path, words: &str| {
        let error = IntentBusFile::open(path).unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    says(&path, "no such file");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    says(&path, "not a database of the Intent Bus");
    let ours = super::World::new();
    says(&ours.path(), "ledger of consign");
}
