//! Import of databases of a Beam directory and of its message bus. An import takes them into a file; for PostgreSQL, that file is
//! then copied to the database.

use std::path::{Path, PathBuf};

use consign_beam::api_key;
use serde_json::{Value, json};

use super::beam_world::{BeamAgent, INTENT, next_intent, until};
use super::{Place, code, printed, start};

const ALICE: &str = "alice@acme.beam.directory";
const BOB: &str = "bob@acme.beam.directory";
const KEY_A: &str = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
const KEY_B: &str = "MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=";

/// The tables of a directory, with legacy words and a table of something else.
const DIRECTORY: &str = r#"
CREATE TABLE agents (beam_id TEXT PRIMARY KEY, org TEXT, personal INTEGER NOT NULL DEFAULT 0, display_name TEXT NOT NULL,
  capabilities TEXT NOT NULL DEFAULT '[]', public_key TEXT NOT NULL, api_key_hash TEXT, email TEXT,
  email_verified INTEGER NOT NULL DEFAULT 0, description TEXT, logo_url TEXT, website TEXT, trust_score REAL NOT NULL DEFAULT 0.5,
  verified INTEGER NOT NULL DEFAULT 0, verification_tier TEXT NOT NULL DEFAULT 'basic', email_token TEXT,
  created_at TEXT NOT NULL, last_seen TEXT NOT NULL, flagged INTEGER NOT NULL DEFAULT 0,
  visibility TEXT NOT NULL DEFAULT 'unlisted', shield_config TEXT, http_endpoint TEXT, dh_public_key TEXT);
CREATE TABLE agent_keys (id INTEGER PRIMARY KEY AUTOINCREMENT, beam_id TEXT NOT NULL, public_key TEXT NOT NULL,
  created_at INTEGER NOT NULL, revoked_at INTEGER, UNIQUE(beam_id, public_key));
CREATE TABLE intent_acls (id INTEGER PRIMARY KEY AUTOINCREMENT, target_beam_id TEXT NOT NULL, intent_type TEXT NOT NULL,
  allowed_from TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE delegations (id INTEGER PRIMARY KEY AUTOINCREMENT, grantor_beam_id TEXT NOT NULL, grantee_beam_id TEXT NOT NULL,
  scope TEXT NOT NULL DEFAULT '[]', created_at TEXT NOT NULL, expires_at TEXT, revoked INTEGER NOT NULL DEFAULT 0);
CREATE TABLE federation_peers (id INTEGER PRIMARY KEY AUTOINCREMENT, directory_url TEXT NOT NULL UNIQUE, public_key TEXT NOT NULL,
  trust_level REAL NOT NULL DEFAULT 0.5, status TEXT NOT NULL DEFAULT 'active', created_at TEXT NOT NULL, last_seen TEXT,
  synced_at TEXT);
CREATE TABLE intent_log (id INTEGER PRIMARY KEY AUTOINCREMENT, nonce TEXT NOT NULL UNIQUE, from_beam_id TEXT NOT NULL,
  to_beam_id TEXT NOT NULL, intent_type TEXT NOT NULL, requested_at TEXT NOT NULL, completed_at TEXT,
  round_trip_latency_ms INTEGER, status TEXT NOT NULL DEFAULT 'received', error_code TEXT, result_json TEXT);
CREATE TABLE intent_trace_events (id INTEGER PRIMARY KEY AUTOINCREMENT, nonce TEXT NOT NULL, from_beam_id TEXT NOT NULL,
  to_beam_id TEXT NOT NULL, intent_type TEXT NOT NULL, stage TEXT NOT NULL, status TEXT NOT NULL, timestamp TEXT NOT NULL,
  details TEXT);
CREATE TABLE waitlist (id INTEGER PRIMARY KEY, email TEXT);
INSERT INTO waitlist VALUES (1, 'someone@example.com');
INSERT INTO agents (beam_id, org, display_name, capabilities, public_key, api_key_hash, created_at, last_seen, visibility) VALUES
  ('alice@acme.beam.directory', 'acme', 'Alice', '["quote"]', 'KEY_A', 'aa11', '2026-01-01T00:00:00.000Z',
   '2026-01-02T00:00:00.000Z', 'public'),
  ('bob@acme.beam.directory', 'acme', 'Bob', '[]', 'KEY_B', NULL, '2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z',
   'unlisted'),
  ('not an id', NULL, 'Nobody', '[]', 'x', NULL, '2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z', 'unlisted');
INSERT INTO agent_keys VALUES (3, 'alice@acme.beam.directory', 'KEY_B', 1000, 2000),
  (5, 'alice@acme.beam.directory', 'KEY_A', 2000, NULL);
INSERT INTO intent_acls VALUES (11, 'bob@acme.beam.directory', 'agent.ping', '*', '2026-01-01T00:00:00.000Z');
INSERT INTO delegations VALUES (2, 'alice@acme.beam.directory', 'bob@acme.beam.directory', '*', '2026-01-01T00:00:00.000Z',
  '2099-01-01T00:00:00.000Z', 0);
INSERT INTO federation_peers VALUES (4, 'https://peer.example', 'k', 0.7, 'active', '2026-01-01T00:00:00.000Z', NULL, NULL);
INSERT INTO intent_log (nonce, from_beam_id, to_beam_id, intent_type, requested_at, completed_at, round_trip_latency_ms, status,
  error_code, result_json) VALUES
  ('done', 'alice@acme.beam.directory', 'bob@acme.beam.directory', 'agent.ping', '2026-01-01T00:00:00.000Z',
   '2026-01-01T00:00:01.500Z', 1500, 'success', NULL, '{"v":"1","success":true,"nonce":"done","payload":{"pong":1}}'),
  ('broken', 'alice@acme.beam.directory', 'bob@acme.beam.directory', 'agent.ping', '2026-01-01T00:00:02.000Z',
   '2026-01-01T00:00:03.000Z', NULL, 'error', 'OUT_OF_STOCK', NULL),
  ('open', 'alice@acme.beam.directory', 'bob@acme.beam.directory', 'agent.ping', '2026-01-01T00:00:04.000Z', NULL, NULL,
   'pending', NULL, NULL),
  ('lost', 'alice@acme.beam.directory', 'bob@acme.beam.directory', 'agent.ping', '2026-01-01T00:00:05.000Z', NULL, NULL,
   'dispatched', NULL, NULL),
  ('later', 'alice@acme.beam.directory', 'bob@acme.beam.directory', 'agent.ping', '2026-01-01T00:00:06.000Z', NULL, NULL,
   'queued', NULL, NULL);
INSERT INTO intent_trace_events (nonce, from_beam_id, to_beam_id, intent_type, stage, status, timestamp, details) VALUES
  ('done', 'a', 'b', 'agent.ping', 'sender_lookup', 'success', '2026-01-01T00:00:00.000Z', NULL),
  ('done', 'a', 'b', 'agent.ping', 'dedupe', 'success', '2026-01-01T00:00:00.000Z', NULL),
  ('done', 'a', 'b', 'agent.ping', 'completed', 'success', '2026-01-01T00:00:01.500Z', '{"latencyMs":1500}');
"#;

const BUS: &str = r#"
CREATE TABLE beam_messages (id TEXT PRIMARY KEY, sender TEXT NOT NULL, recipient TEXT NOT NULL, intent TEXT NOT NULL,
  payload TEXT NOT NULL DEFAULT '{}', status TEXT NOT NULL DEFAULT 'pending', priority INTEGER DEFAULT 0,
  retry_count INTEGER DEFAULT 0, max_retries INTEGER DEFAULT 5, next_retry_at REAL, created_at REAL NOT NULL, delivered_at REAL,
  acked_at REAL, failed_at REAL, error TEXT, response TEXT, trace_id TEXT, metadata TEXT);
INSERT INTO beam_messages (id, sender, recipient, intent, payload, status, created_at) VALUES
  ('00000000000000000000000000000001', 'a', 'b', 'agent.ping', '{"message":"hi"}', 'pending', 1767225600.5),
  ('00000000000000000000000000000002', 'a', 'b', 'agent.ping', '{}', 'expired', 1767225601.5),
  ('00000000000000000000000000000003', 'a', 'b', 'agent.ping', '[]', 'acked', 1767225602.5);
"#;

fn made(place: &Place, name: &str, sql: &str) -> PathBuf {
    let path = place.path(name);
    let database = rusqlite::Connection::open(&path).expect("a database can be made");
    let sql = sql.replace("KEY_A", KEY_A).replace("KEY_B", KEY_B);
    database
        .execute_batch(&sql)
        .expect("the tables can be made");
    path
}

fn import(place: &Place, path: &Path, more: &[&str]) -> std::process::Output {
    let path = path.to_string_lossy();
    place.consign(&[&["import", "beam", &path, "--json"], more].concat())
}

/// Moves what was imported to the database of the place, if it has one.
fn move_to_ledger(place: &Place) {
    let Some(database) = &place.database else {
        return;
    };
    let file = format!("sqlite:{}", place.data().join("consign.db").display());
    let copy = ["store", "copy", "--json", "--from", &file, "--to"];
    printed(&place.consign(&[&copy[..], &[&database.url()]].concat()));
}

#[track_caller]
fn counted(printed: &Value, name: &str) -> (u64, u64) {
    let count = |suffix: &str| {
        let count = printed[format!("{name}_{suffix}")].as_u64();
        count.expect("the report has the number")
    };
    (count("taken"), count("present"))
}

#[test]
fn be_009_be_011_a_directory_is_taken_once_and_the_next_start_recovers_it() {
    let place = Place::new();
    let path = made(&place, "beam-directory.db", DIRECTORY);
    let bytes = std::fs::read(&path).unwrap();
    let rehearsed = printed(&import(&place, &path, &["--dry-run"]));
    assert_eq!(rehearsed["dry_run"], true);
    assert_eq!(counted(&rehearsed, "agents"), (2, 0));
    assert_eq!(counted(&rehearsed, "intents"), (5, 0));
    assert!(!place.data().exists(), "a dry run makes nothing");

    let taken = printed(&import(&place, &path, &["--yes"]));
    for (name, count) in [
        ("agents", 2),
        ("acls", 1),
        ("delegations", 1),
        ("peers", 1),
        ("intents", 5),
        ("messages", 0),
    ] {
        assert_eq!(counted(&taken, name), (count, 0), "{name}: {taken}");
        assert_eq!(counted(&rehearsed, name), (count, 0), "{name}: {rehearsed}");
    }
    assert_eq!(taken["skipped"], 1, "{taken}");
    for options in [["--dry-run"], ["--yes"]] {
        let again = printed(&import(&place, &path, &options));
        for (name, count) in [("agents", 2), ("acls", 1), ("delegations", 1), ("peers", 1)] {
            assert_eq!(counted(&again, name), (0, count), "{name}: {again}");
        }
        assert_eq!(counted(&again, "intents"), (0, 5), "{again}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);

    move_to_ledger(&place);
    let server = start(&place.options());
    let mut http = server.http();
    let mut get = |path: &str| http.send("GET", path, &[], None).unwrap().json();
    let agent = get(&format!("/agents/{ALICE}"));
    assert_eq!(agent["display_name"], "Alice");
    assert_eq!(agent["created_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(agent["keyState"]["active"]["id"], 5);
    assert_eq!(agent["keyState"]["revoked"][0]["revokedAt"], 2_000);
    let revoked = get("/keys/revoked");
    assert_eq!(revoked["total"], 1, "{revoked}");
    let acl = get(&format!("/acl/{BOB}"));
    assert_eq!(acl["acl"][0]["id"], 11, "{acl}");
    let recent = get("/intents/recent");
    let row = |nonce: &str| {
        let rows = recent["intents"].as_array().unwrap();
        let found = rows.iter().find(|row| row["nonce"] == nonce);
        found.unwrap_or_else(|| panic!("{nonce}: {recent}")).clone()
    };
    let done = row("done");
    assert_eq!(
        (&done["status"], &done["errorCode"]),
        (&"acked".into(), &Value::Null)
    );
    assert_eq!(done["completedAt"], "2026-01-01T00:00:01.500Z");
    assert_eq!(done["roundTripLatencyMs"], 1_500);
    assert_eq!(row("broken")["status"], "failed");
    assert_eq!(row("broken")["errorCode"], "OUT_OF_STOCK");
    for nonce in ["open", "lost", "later"] {
        let row = row(nonce);
        assert_eq!(row["status"], "failed", "{row}");
        assert_eq!(row["errorCode"], "DELIVERY_FAILED", "{row}");
    }
}

#[test]
fn be_009_be_011_a_bus_of_an_early_version_is_taken_once() {
    let place = Place::new();
    let path = made(&place, "beam-bus.sqlite", BUS);
    let taken = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(counted(&taken, "messages"), (2, 0), "{taken}");
    assert_eq!(taken["skipped"], 1, "{taken}");
    let again = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(counted(&again, "messages"), (0, 2), "{again}");
}

#[test]
fn be_009_be_011_an_agent_goes_on_with_its_api_key_and_a_waiting_message_is_delivered() {
    let place = Place::new();
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    // As upstream issued it: only its digest is in the file.
    let key = api_key::issue(&alice.beam_id, &[7; api_key::SECRET_BYTES]);
    let agent = |agent: &BeamAgent, digest: &str| {
        let (id, public) = (&agent.beam_id, agent.public_key());
        format!(
            "INSERT INTO agents (beam_id, org, display_name, public_key, api_key_hash, created_at, last_seen)
             VALUES ('{id}', 'acme', 'An agent', '{public}', '{digest}', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z');
             INSERT INTO agent_keys (beam_id, public_key, created_at) VALUES ('{id}', '{public}', 1000);"
        )
    };
    let tables = DIRECTORY.split("INSERT INTO").next().unwrap();
    let directory = [
        tables,
        &agent(&alice, &api_key::digest(key.reveal())),
        &agent(&bob, "00"),
        &format!(
            "INSERT INTO intent_acls VALUES (11, '{}', '{INTENT}', '{}', '2026-01-01T00:00:00.000Z');",
            bob.beam_id, alice.beam_id
        ),
    ];
    let directory = made(&place, "beam-directory.db", &directory.concat());
    let taken = printed(&import(&place, &directory, &["--yes"]));
    assert_eq!(counted(&taken, "agents"), (2, 0), "{taken}");
    let tables = BUS.split("INSERT INTO").next().unwrap();
    let message = "00000000000000000000000000000009";
    let bus = format!(
        "{tables} INSERT INTO beam_messages (id, sender, recipient, intent, payload, status, created_at)
         VALUES ('{message}', '{}', '{}', '{INTENT}', '{{\"message\":\"hi\"}}', 'pending', 1767225600.5);",
        alice.beam_id, bob.beam_id
    );
    let bus = made(&place, "beam-bus.sqlite", &bus);
    let taken = printed(&import(&place, &bus, &["--yes"]));
    assert_eq!(counted(&taken, "messages"), (1, 0), "{taken}");
    move_to_ledger(&place);

    let identities = place.path("identities.json");
    std::fs::write(&identities, json!({"alice": alice.identity()}).to_string()).unwrap();
    let options = place
        .options()
        .env("BEAM_BUS_IDENTITY_PATH", &identities.to_string_lossy())
        // Bob connects before the first attempt: an imported message keeps the pauses of upstream.
        .env("BEAM_BUS_RETRY_INTERVAL_MS", "2500");
    let server = start(&options);
    let mut socket = bob.connect(&server);
    let recent = |key: &str| {
        let mut elsewhere = server
            .http()
            .header("X-Forwarded-For", "203.0.113.7")
            .header("x-api-key", key);
        elsewhere.get("/intents/recent").unwrap().status
    };
    assert_eq!(recent(key.reveal()), 200);
    let other = api_key::issue(&alice.beam_id, &[8; api_key::SECRET_BYTES]);
    assert_eq!(recent(other.reveal()), 401);

    let frame = next_intent(&mut socket);
    assert_eq!(
        (&frame["from"], &frame["payload"]),
        (&json!(alice.beam_id), &json!({"message": "hi"}))
    );
    let nonce = frame["nonce"].as_str().unwrap();
    assert_eq!(nonce, message, "a row without a nonce is sent with its id");
    socket.send_json(&bob.result(nonce, "here")).unwrap();
    until("the message is delivered", || {
        let history = server.http().get("/v1/beam/history").unwrap().json();
        let found = &history["messages"][0];
        assert_eq!(found["id"], message, "{history}");
        (found["status"] == "delivered").then_some(())
    });
}

#[test]
fn a_file_that_is_neither_changes_nothing() {
    let place = Place::new();
    let other = made(
        &place,
        "other.db",
        "CREATE TABLE agents (id TEXT, name TEXT);",
    );
    let text = place.path("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(400)).unwrap();
    for path in [other, text, place.path("absent.db")] {
        for more in ["--yes", "--dry-run"] {
            let output = import(&place, &path, &[more]);
            assert_ne!(code(&output), 0, "{}", path.display());
            assert!(!place.data().exists(), "{}", path.display());
        }
    }
    let path = made(&place, "bus.db", BUS);
    let unasked = import(&place, &path, &[]);
    assert_eq!(code(&unasked), 2, "without a terminal it needs --yes");
    assert!(!place.data().exists());
}
