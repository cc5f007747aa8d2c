//! A server and its SQLite file: exclusive use, location and persistence.

use consign_testkit::shim::Shim;

use super::clock::{DAY_S, claimed, fulfilled};
use super::{PATIENCE, Place, code, main_client, printed, published, refusal, start};

#[test]
fn two_data_directories_cannot_share_a_database() {
    let place = Place::new();
    let store = format!("sqlite:{}", place.path("shared.db").display());
    let _server = start(&place.options().arg("--store").arg(&store));
    let mut other = place.options().arg("--store").arg(&store);
    other.data = place.path("other");
    let (code, said) = refusal(&other);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn ip_169_ip_181_bus_db_path_names_the_database_and_it_is_in_wal_mode() {
    let place = Place::new();
    let path = place.path("my.db");
    let server = start(&place.options().env("BUS_DB_PATH", &path.to_string_lossy()));
    published(&mut main_client(&server), "here");
    assert!(path.exists() && !place.data().join("consign.db").exists());
    assert!(place.path("my.db-wal").exists());
    let database = rusqlite::Connection::open(&path).unwrap();
    let mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let mode = database.query_row("PRAGMA journal_mode", [], mode).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn the_store_flag_beats_the_variable() {
    let place = Place::new();
    let store = format!("sqlite:{}", place.path("flag.db").display());
    let variable = place.path("variable.db");
    let options = place.options().arg("--store").arg(&store);
    let _server = start(&options.env("BUS_DB_PATH", &variable.to_string_lossy()));
    assert!(place.path("flag.db").exists() && !variable.exists());
}

#[test]
fn the_store_is_checked_when_no_server_holds_it() {
    let place = Place::new();
    assert_eq!(code(&place.consign(&["store", "check"])), 3);
    let server = place.start();
    published(&mut main_client(&server), "kept");
    assert_eq!(code(&place.consign(&["store", "check"])), 1);
    let backup = place.path("backup.db");
    let saved = place.consign(&["store", "backup", &backup.to_string_lossy(), "--json"]);
    assert!(
        printed(&saved)["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    let copy = format!("sqlite:{}", backup.display());
    let checked = place.consign(&["store", "check", "--store", &copy, "--json"]);
    assert_eq!(printed(&checked)["ok"], true);
    drop(server);
    let checked = printed(&place.consign(&["store", "check", "--json"]));
    assert_eq!(
        (&checked["ok"], &checked["findings"]),
        (&true.into(), &serde_json::json!([]))
    );
}

#[test]
fn a_start_with_a_clock_that_lies_a_day_behind_finds_everything() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let mut server = start(&shim.under(place.options(), "consign.db"));
    let kept = published(&mut main_client(&server), "kept");
    assert!(server.terminate(PATIENCE).unwrap().success());
    shim.move_clock((-DAY_S).into()).expect("the shim listens");
    let options = shim.under(place.options(), "consign.db");
    let (code, said) = refusal(&options);
    assert!(code == 1 && said.contains("--clock-ahead"), "{said}");
    let server = start(&options.arg("--clock-ahead"));
    let mut http = main_client(&server);
    let job = claimed(&mut http).expect("what was acknowledged is there");
    assert_eq!(job["id"], kept.as_str());
    assert_eq!(fulfilled(&mut http, &job), 200);
}
