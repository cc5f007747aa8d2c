//! Import of a database of the original Intent Bus.

use std::path::{Path, PathBuf};

use super::{Place, code, get, main_client, printed, refusal, start, text};

/// The tables as the original creates them, with a few rows. The test fills in the times.
const ORIGINAL: &str = r#"
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
  payload TEXT, publisher TEXT, visibility TEXT, attempts INTEGER, reason TEXT, created_at REAL);
INSERT INTO intents VALUES ('00000000000000000000000000000001', 'default', 'greet', '{"n": 1}', 'open', 100, NULL,
  NULL, NOW, NOW + 86400, NOW, NULL, NULL, NULL, NULL, 'old-main-key-0123456789', 0, 3, 5.0, 'private', NULL, NULL,
  NULL, NULL, NULL);
INSERT INTO intents VALUES ('00000000000000000000000000000002', 'ns', 'wave', '"x"', 'dead', 7, NULL, NULL, NOW,
  NOW + 86400, NOW, NULL, NULL, NULL, NULL, 'old-main-key-0123456789', 3, 3, 5.0, 'public', 'broken', NOW, NULL, NULL,
  NULL);
INSERT INTO dead_letters (intent_id, namespace, goal, payload, publisher, visibility, attempts, reason, created_at)
  VALUES ('00000000000000000000000000000002', 'ns', 'wave', '"x"', 'old-main-key-0123456789', 'public', 3, 'broken',
  NOW);
INSERT INTO tester_keys VALUES ('tk_0123456789abcdef0123456789abcdef', 'someone', 12, NOW);
"#;

const MAIN_KEY: (&str, &str) = ("BUS_SECRET", "old-main-key-0123456789");

fn original(place: &Place) -> PathBuf {
    let path = place.path("infrastructure.db");
    let database = rusqlite::Connection::open(&path).expect("a database can be made");
    let now_s = consign_testkit::history::now_us() / 1_000_000;
    // A minute ago, so that everything is due whatever the current fraction of a second.
    let filled = ORIGINAL.replace("NOW", &format!("{}.5", now_s - 60));
    database
        .execute_batch(&filled)
        .expect("the tables can be made");
    path
}

fn import(place: &Place, path: &Path, more: &[&str]) -> std::process::Output {
    let path = path.to_string_lossy();
    let args = [&["import", "intent-bus", &path, "--json"], more].concat();
    place.consign_with(&args, &[MAIN_KEY])
}

#[test]
fn a_file_of_the_intent_bus_is_refused_untouched_with_the_command_that_takes_it() {
    let place = Place::new();
    let path = original(&place);
    let bytes = std::fs::read(&path).unwrap();
    let shown = path.to_string_lossy();
    let (code, said) = refusal(&place.options().env("BUS_DB_PATH", &shown));
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains(&format!("consign import intent-bus {shown}")),
        "{said}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert!(!place.path("infrastructure.db-wal").exists());
}

#[test]
fn an_import_takes_everything_once_and_a_dry_run_takes_nothing() {
    let place = Place::new();
    let path = original(&place);
    let bytes = std::fs::read(&path).unwrap();
    let rehearsed = printed(&import(&place, &path, &["--dry-run"]));
    assert_eq!(
        (&rehearsed["intents_taken"], &rehearsed["dry_run"]),
        (&2.into(), &true.into())
    );
    assert!(!place.data().exists(), "a dry run makes nothing");

    let taken = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(
        (&taken["intents_taken"], &taken["keys_taken"]),
        (&2.into(), &1.into())
    );
    let again = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(
        (&again["intents_taken"], &again["intents_present"]),
        (&0.into(), &2.into())
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);

    let server = start(&place.options().env(MAIN_KEY.0, MAIN_KEY.1));
    let mut http = server.http().header("X-API-KEY", MAIN_KEY.1);
    let claimed = http.send("POST", "/claim", &[], None).unwrap().json();
    assert_eq!(claimed["id"], "00000000000000000000000000000001");
    assert_eq!(claimed["payload"]["n"], 1);
    let mut operator = server.admin_client().unwrap();
    let dead = get(&mut operator, "/admin/dead").json();
    assert_eq!(dead[0]["reason"], "broken");
    let keys = get(&mut operator, "/admin/keys").json();
    assert_eq!(keys.as_array().map(Vec::len), Some(1));
    let mut tester = server
        .http()
        .header("X-API-KEY", "tk_0123456789abcdef0123456789abcdef");
    assert_eq!(super::publish(&mut tester, "as before").status, 201);
}

/// Adds an intent like the first one, with one column changed.
fn add(path: &Path, id: &str, column: &str, value: &str) {
    let database = rusqlite::Connection::open(path).expect("it is a database");
    database
        .execute_batch(&format!(
            "CREATE TEMP TABLE one AS SELECT * FROM intents WHERE id = '00000000000000000000000000000001';
             UPDATE one SET id = '{id}';
             INSERT INTO intents SELECT * FROM one;
             UPDATE intents SET {column} = {value} WHERE id = '{id}';"
        ))
        .expect("the row can be added");
}

#[test]
fn rows_that_cannot_be_taken_are_named_and_the_rest_is_taken() {
    let place = Place::new();
    let path = original(&place);
    let id = |last: char| format!("{}{last}", "0".repeat(31));
    add(&path, &id('3'), "payload", "NULL");
    add(&path, &id('4'), "goal", "x'ff'");
    add(&path, &id('5'), "namespace", "'mesh.x'");
    add(
        &path,
        &id('6'),
        "payload",
        "'\"' || printf('%.7167c', 'p') || '\"'",
    );
    add(&path, &id('7'), "rowid", "-7");
    add(&path, &id('8'), "publisher", "'main'");
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch(
            "INSERT INTO tester_keys VALUES (NULL, 'nobody', 0, 1.0);
             INSERT INTO store VALUES ('old-main-key-0123456789:colour', x'00', 4e9),
               ('old-main-key-0123456789:size', 'xl', 4e9), ('main:size', 's', 4e9);",
        )
        .unwrap();
    drop(database);

    let taken = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(
        (&taken["intents_taken"], &taken["skipped"]),
        (&4.into(), &6.into())
    );
    assert_eq!(
        taken["reasons"],
        serde_json::json!([
            "key in row 2: its api_key is null",
            format!("intent {} in row 3: its payload is null", id('3')),
            format!("intent {} in row 4: its goal is a blob", id('4')),
            format!(
                "intent {} in row 5: its namespace \"mesh.x\" is reserved",
                id('5')
            ),
            format!(
                "intent {} in row 6: its payload has 7169 bytes, and 7168 are allowed",
                id('6')
            ),
            "value in row 1: its value is a blob",
        ])
    );
    let server = start(&place.options().env(MAIN_KEY.0, MAIN_KEY.1));
    let mut http = server.http().header("X-API-KEY", MAIN_KEY.1);
    let mut operator = server.admin_client().unwrap();
    let mut publisher = |id: String| {
        let shown = get(&mut operator, &format!("/admin/intents/{id}")).json();
        super::word(&shown["publisher"])
    };
    assert_eq!(publisher(id('7')), "main");
    assert!(publisher(id('8')).starts_with("k_"), "it is no row of ours");
    assert_eq!(get(&mut http, "/get/size").json()["value"], "xl");
}

#[test]
fn an_import_that_fails_says_that_it_can_be_run_again() {
    let place = Place::new();
    let path = original(&place);
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch("ALTER TABLE store RENAME COLUMN value TO val")
        .unwrap();
    drop(database);
    let stopped = import(&place, &path, &["--yes"]);
    let said = text(&stopped.stderr);
    assert_eq!(code(&stopped), 1, "{said}");
    assert!(
        said.starts_with("error: the import stopped before its end: no such column"),
        "{said}"
    );
    assert!(
        said.contains("hint: data imported so far stays; run the same command again"),
        "{said}"
    );
    assert!(!said.contains("nothing was"), "{said}");

    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch("ALTER TABLE store RENAME COLUMN val TO value")
        .unwrap();
    drop(database);
    let again = printed(&import(&place, &path, &["--yes"]));
    assert_eq!(
        (&again["intents_present"], &again["keys_present"]),
        (&2.into(), &1.into())
    );
}

#[test]
fn a_ledger_whose_keys_are_gone_is_not_given_new_ones() {
    let place = Place::new();
    let path = original(&place);
    printed(&import(&place, &path, &["--yes"]));
    for name in ["seal_key", "receipt_seed"] {
        let key = place.data().join("keys").join(name);
        let kept = place.path(name);
        std::fs::rename(&key, &kept).unwrap();
        let (code, said) = refusal(&place.options());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&format!("keys/{name} is missing")), "{said}");
        assert!(
            said.contains("hint: restore the file from a backup"),
            "{said}"
        );
        let refused = import(&place, &path, &["--yes"]);
        assert!(text(&refused.stderr).contains("is missing"), "{refused:?}");
        assert!(!key.exists());
        std::fs::rename(&kept, &key).unwrap();
    }
    place.start();
}

#[test]
fn an_import_while_the_server_runs_is_refused() {
    let place = Place::new();
    let path = original(&place);
    let server = place.start();
    let refused = import(&place, &path, &["--yes"]);
    assert_eq!(code(&refused), 1);
    assert!(text(&refused.stderr).contains(&server.pid().to_string()));
    assert_eq!(
        get(&mut main_client(&server), "/intents").json()["intents"],
        serde_json::json!([])
    );
}

#[test]
fn a_missing_file_is_said_to_be_missing() {
    let place = Place::new();
    let refused = import(&place, &place.path("none.db"), &["--yes"]);
    assert_eq!(code(&refused), 3);
}
