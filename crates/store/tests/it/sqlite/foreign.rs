//! Files of other applications are refused and left unchanged, including the files next to them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use consign_store::Error;
use consign_store::conformance::ManualClock;
use consign_store::sqlite::{FileKind, Sqlite, identify};
use rusqlite::Connection;

use super::import::INTENT_BUS_SCHEMA;
use super::open;

/// All files in a folder, byte for byte.
fn snapshot(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect()
}

/// Opens the file that `make` creates and returns the error; the folder must not change.
fn refusal(make: impl FnOnce(&Path)) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("infrastructure.db");
    make(&path);
    let before = snapshot(folder.path());
    let refused = open(path.clone(), &Arc::new(ManualClock::default()), 8).unwrap_err();
    assert_eq!(snapshot(folder.path()), before);
    let _ = Sqlite::last_time(&path);
    assert_eq!(snapshot(folder.path()), before);
    refused
}

#[test]
fn a_database_of_another_program_is_refused_untouched() {
    let error = refusal(|path| {
        let other = Connection::open(path).unwrap();
        other
            .execute_batch("CREATE TABLE intents (x); INSERT INTO intents VALUES (1)")
            .unwrap();
    });
    assert!(matches!(error, Error::ForeignFile { .. }), "{error}");
}

#[test]
fn a_foreign_database_with_a_log_is_refused_untouched() {
    let error = refusal(|path| {
        let other = Connection::open(path).unwrap();
        other
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x)")
            .unwrap();
    });
    assert!(matches!(error, Error::ForeignFile { .. }), "{error}");
}

#[test]
fn a_file_of_the_intent_bus_is_recognised_and_refused_untouched() {
    let error = refusal(|path| {
        let bus = Connection::open(path).unwrap();
        bus.execute_batch("PRAGMA journal_mode = WAL").unwrap();
        bus.execute_batch(INTENT_BUS_SCHEMA).unwrap();
    });
    assert!(matches!(error, Error::IntentBusFile { .. }), "{error}");
    assert!(error.to_string().contains("consign import intent-bus"));
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    let error = refusal(|path| std::fs::write(path, "dear diary, ".repeat(400)).unwrap());
    assert!(matches!(error, Error::Open { .. }), "{error}");
}

#[test]
fn a_path_in_no_folder_is_refused_with_its_name() {
    let path = Path::new("/no/such/folder/ledger.db").to_owned();
    let error = open(path, &Arc::new(ManualClock::default()), 8).unwrap_err();
    assert!(
        error.to_string().contains("/no/such/folder/ledger.db"),
        "{error}"
    );
}

#[test]
fn an_empty_file_becomes_ours_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd name?mode=ro#100%41.db");
    std::fs::write(&path, "").unwrap();
    assert_eq!(identify(&path).unwrap(), FileKind::Nothing);
    let store = open(path.clone(), &Arc::new(ManualClock::default()), 8).unwrap();
    store.close();
    assert_eq!(identify(&path).unwrap(), FileKind::Consign);
    drop(store);
    assert!(open(path, &Arc::new(ManualClock::default()), 8).is_ok());
}
