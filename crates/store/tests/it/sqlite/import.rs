//! Reading a file of the original Intent Bus.

use consign_store::Error;
use consign_store::sqlite::{ForeignRows, IntentBusFile};
use rusqlite::Connection;

/// The tables of the original, as its own server makes them.
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

/// A file with rows. Keep the connection to keep its log beside it.
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
    let first = file.intents(0, 2).unwrap();
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
    let rest = file.intents(first[1].rowid, 2).unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].result.as_deref(), Some(r#"{"r":1}"#));
    assert_eq!(
        (rest[0].failed_at, rest[0].completed_at),
        (Some(6.0), Some(7.0))
    );
    assert_eq!(
        file.dead_reason("cc").unwrap(),
        Some(("broken".to_owned(), 6.5))
    );
    assert_eq!(file.dead_reason("aa").unwrap(), None);
    let keys = file.keys().unwrap();
    assert_eq!(
        (keys[0].api_key.as_str(), keys[0].total_requests),
        ("tk_1", 12)
    );
    assert_eq!((keys[1].owner.as_str(), keys[1].total_requests), ("", 0));
    let kv = file.kv().unwrap();
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
