//! Reading files of Beam's directory and bus.

use std::path::{Path, PathBuf};

use consign_store::Error;
use consign_store::sqlite::{BeamFile, BeamFileRows, ForeignMessage};
use rusqlite::Connection;

const DIRECTORY: &str = "
CREATE TABLE agents (beam_id TEXT PRIMARY KEY, org TEXT, display_name TEXT NOT NULL, capabilities TEXT NOT NULL DEFAULT '[]',
  public_key TEXT NOT NULL, api_key_hash TEXT, created_at TEXT NOT NULL, last_seen TEXT NOT NULL);
CREATE TABLE agent_keys (id INTEGER PRIMARY KEY AUTOINCREMENT, beam_id TEXT NOT NULL, public_key TEXT NOT NULL,
  created_at INTEGER NOT NULL, revoked_at INTEGER);
CREATE TABLE intent_log (id INTEGER PRIMARY KEY AUTOINCREMENT, from_beam_id TEXT NOT NULL, to_beam_id TEXT NOT NULL,
  intent_type TEXT NOT NULL, requested_at TEXT NOT NULL, completed_at TEXT, round_trip_latency_ms INTEGER,
  status TEXT NOT NULL DEFAULT 'success', error_code TEXT);
CREATE TABLE intent_trace_events (id INTEGER PRIMARY KEY AUTOINCREMENT, nonce TEXT NOT NULL, stage TEXT NOT NULL,
  status TEXT NOT NULL, timestamp TEXT NOT NULL, details TEXT);
CREATE TABLE waitlist (id INTEGER PRIMARY KEY, email TEXT);
INSERT INTO agents VALUES ('a@x.beam.directory', 'x', 'A', '[]', 'key', NULL, '2026-01-01T00:00:00.000Z', 'later');
INSERT INTO agent_keys VALUES (4, 'a@x.beam.directory', 'old', 1, 2), (7, 'a@x.beam.directory', 'key', 3, NULL);
INSERT INTO intent_log (from_beam_id, to_beam_id, intent_type, requested_at) VALUES ('a', 'b', 'c', 'then'), ('d', 'e', 'f', x'00');
INSERT INTO intent_trace_events (nonce, stage, status, timestamp) VALUES ('n', 'second', 's', 't2'), ('m', 'x', 'x', 'x'),
  ('n', 'third', 's', 't1');";

const BUS: &str = "
CREATE TABLE beam_messages (id TEXT PRIMARY KEY, sender TEXT NOT NULL, recipient TEXT NOT NULL, intent TEXT NOT NULL,
  payload TEXT NOT NULL DEFAULT '{}', status TEXT NOT NULL, created_at REAL NOT NULL);
INSERT INTO beam_messages VALUES ('m3', 'a', 'b', 'i', '{}', 'pending', 3.5), ('m1', 'a', 'b', 'i', '{}', 'acked', 1),
  ('m2', 'a', 'b', 'i', '{}', 'expired', 3.5);";

fn made(folder: &tempfile::TempDir, sql: &str) -> PathBuf {
    let path = folder.path().join("beam.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

fn refused(path: &Path) -> String {
    let before = std::fs::read(path).ok();
    let error = BeamFile::open(path).unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    assert_eq!(std::fs::read(path).ok(), before);
    error.to_string()
}

#[test]
fn a_directory_of_an_early_version_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = BeamFile::open(&made(&folder, DIRECTORY)).unwrap();
    let rows = BeamFileRows {
        agents: 1,
        intents: 2,
        ..BeamFileRows::default()
    };
    assert_eq!(file.rows().unwrap(), rows);
    assert_eq!(file.numbers().unwrap().keys, 7);
    let agents = file.agents(None, 9).unwrap();
    let agent = agents.rows[0].as_ref().unwrap();
    assert_eq!((agent.email.as_ref(), agent.verified), (None, false));
    let after = file.agents(agents.next.as_ref(), 9).unwrap();
    assert!(after.rows.is_empty() && after.next.is_none());
    let keys = file.agent_keys("a@x.beam.directory").unwrap();
    let numbers: Vec<_> = keys.iter().map(|key| key.as_ref().unwrap().id).collect();
    assert_eq!(numbers, [4, 7]);

    let intents = file.intents(None, 9).unwrap().rows;
    assert_eq!(intents[0].as_ref().unwrap().nonce, None);
    let unreadable = intents[1].as_ref().unwrap_err();
    assert_eq!(unreadable.reason, "its requested_at is a blob");
    // In the order in which they were written, without an index on the nonce.
    let trace = file.trace("n").unwrap();
    let stages: Vec<_> = trace
        .into_iter()
        .map(|event| event.unwrap().stage)
        .collect();
    assert_eq!(stages, ["second", "third"]);
}

#[test]
fn messages_come_in_the_order_of_their_creation_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = BeamFile::open(&made(&folder, BUS)).unwrap();
    let (mut cursor, mut ids) = (None, Vec::new());
    loop {
        let page = file.messages(cursor.as_ref(), 1).unwrap();
        ids.extend(page.rows.into_iter().map(|row| row.unwrap().id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(ids, ["m1", "m3", "m2"]);
}

#[test]
fn a_log_beside_the_file_counts_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("beam.db");
    let bus = Connection::open(&path).unwrap();
    bus.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
        .unwrap();
    bus.execute_batch(BUS).unwrap();
    // As after a kill: the tables are in the log alone.
    let copy = folder.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let (log, log_copy) = (
        folder.path().join("beam.db-wal"),
        folder.path().join("copy.db-wal"),
    );
    std::fs::copy(log, &log_copy).unwrap();
    let before = (
        std::fs::read(&copy).unwrap(),
        std::fs::read(&log_copy).unwrap(),
    );
    let file = BeamFile::open(&copy).unwrap();
    let messages: Vec<ForeignMessage> = file
        .messages(None, 9)
        .unwrap()
        .rows
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(messages.len(), 3);
    drop(file);
    let after = (
        std::fs::read(&copy).unwrap(),
        std::fs::read(&log_copy).unwrap(),
    );
    assert!(before == after, "the file and its log are only read");
}

#[test]
fn other_files_are_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let other = made(
        &folder,
        "CREATE TABLE beam_messages (id TEXT, channel_id TEXT, content TEXT); CREATE TABLE agents (id TEXT);",
    );
    assert!(refused(&other).ends_with("it is not a database of Beam"));
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(400)).unwrap();
    refused(&text);
    refused(&folder.path().join("absent.db"));
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    refused(&empty);
}

#[test]
fn a_damaged_file_is_refused_before_any_row_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(&folder, BUS);
    {
        let bus = Connection::open(&path).unwrap();
        for number in 0..2_000 {
            let id = format!("x{number}");
            bus.execute(
                "INSERT INTO beam_messages VALUES (?1, 'a', 'b', 'i', '{}', 'acked', 5)",
                [id],
            )
            .unwrap();
        }
    }
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 4_096].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    refused(&path);
    bytes.truncate(8_192);
    std::fs::write(&path, &bytes).unwrap();
    refused(&path);
}
