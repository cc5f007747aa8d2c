//! S9 and S7 on both databases: a lost ledger is not replaced silently, and a ledger with a future time is not used.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::fs;
use std::process::Output;

use consign_testkit::postgres::Database;

use crate::place::*;

const YEAR_US: i64 = 365 * 86_400 * 1_000_000;

/// Deletes the ledger, as a lost disk or a wrong command would.
fn lose(place: &Place) {
    if let Some(database) = &place.database {
        let both = "DROP SCHEMA consign CASCADE; DROP SCHEMA mesh CASCADE";
        database.sql(both).unwrap();
        return;
    }
    fs::remove_file(place.data().join("consign.db")).unwrap();
}

/// Moves the time of the last commit ahead.
fn date_ahead(place: &Place, us: i64) {
    if let Some(database) = &place.database {
        let sql = format!("UPDATE consign.facts SET at = at + {us}");
        database.sql(&sql).unwrap();
        return;
    }
    let file = rusqlite::Connection::open(place.data().join("consign.db")).unwrap();
    let sql = "UPDATE position SET last_time = last_time + ?1";
    file.execute(sql, [us]).unwrap();
}

fn stopped(place: &Place) -> String {
    let mut server = place.start();
    let id = published(&mut main_client(&server), "kept");
    assert!(server.terminate(PATIENCE).unwrap().success());
    id
}

fn check(place: &Place, more: &[&str]) -> Output {
    let url = place.database.as_ref().map(Database::url);
    let mut args = vec!["store", "check"];
    args.extend(more);
    if let Some(url) = &url {
        args.extend(["--store", url]);
    }
    place.consign(&args)
}

#[test]
fn s9_a_missing_ledger_beside_keys_is_refused_without_new_ledger() {
    let place = Place::new();
    stopped(&place);
    lose(&place);
    for _ in 0..2 {
        let (code, said) = refusal(&place.options());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("--new-ledger"), "{said}");
        assert!(said.contains("backup"), "{said}");
    }
    if let Some(database) = &place.database {
        let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'consign'";
        assert_eq!(database.sql(sql).unwrap().trim(), "0", "nothing was made");
    } else {
        assert!(
            !place.data().join("consign.db").exists(),
            "nothing was made"
        );
    }
    // Keys that were moved or restored from a backup record the ledger as well.
    let other = place.path("other");
    consign_testkit::process::copy_secrets(&place.data(), &other).unwrap();
    let (code, said) = refusal(&place.options_with(other));
    assert!(code == 1 && said.contains("--new-ledger"), "{said}");
    let mut server = start(&place.options().arg("--new-ledger"));
    let id = published(&mut main_client(&server), "anew");
    assert!(server.terminate(PATIENCE).unwrap().success());
    let server = place.start();
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
}

#[test]
fn s9_a_first_start_that_was_cut_off_before_its_ledger_is_no_loss() {
    let place = Place::new();
    stopped(&place);
    // The state after the keys are created and nothing else.
    fs::remove_file(place.data().join("keys/ledger_made")).unwrap();
    let _ = fs::remove_file(place.data().join("address"));
    lose(&place);
    drop(place.start());
}

#[test]
fn s7_a_ledger_from_the_future_is_refused_with_the_way_out() {
    let place = Place::new();
    let id = stopped(&place);
    date_ahead(&place, 10 * YEAR_US);
    let (code, said) = refusal(&place.options());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("--clock-ahead"), "{said}");
    assert!(said.contains("ahead of"), "{said}");
    let mut server = start(&place.options().arg("--clock-ahead"));
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
    assert!(server.terminate(PATIENCE).unwrap().success());
    if place.database.is_none() {
        let found = check(&place, &[]);
        assert_eq!(code_and(&found, "--repair"), 1);
        assert_eq!(code_and(&check(&place, &["--repair"]), "set back"), 0);
        let server = place.start();
        assert_eq!(status_of(&mut main_client(&server), &id), "open");
    }
}

fn code_and(output: &Output, told: &str) -> i32 {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(said.contains(told), "{said}");
    code(output)
}

#[test]
fn s5_positions_that_lie_behind_are_told_mended_and_recovered() {
    let place = Place::new();
    stopped(&place);
    let damage = || {
        if let Some(database) = &place.database {
            let sql = "UPDATE consign.intents SET seq = seq + 40960000; UPDATE consign.facts SET intent = intent + 40960000; \
                       SELECT setval('consign.intent_blocks', 1)";
            database.sql(sql).unwrap();
            return;
        }
        let file = rusqlite::Connection::open(place.data().join("consign.db")).unwrap();
        file.execute("UPDATE position SET last_seq = 0, last_fact = 0", [])
            .unwrap();
    };
    damage();
    let found = check(&place, &[]);
    assert_eq!(code_and(&found, "store check --repair"), 1);
    let planned = check(&place, &["--repair", "--dry-run", "--json"]);
    assert_eq!(code(&planned), 1, "nothing was changed: {planned:?}");
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(planned["repair"]["dry_run"], true);
    assert!(planned["repair"]["repaired"][0].is_string(), "{planned}");
    let mended = printed(&check(&place, &["--repair", "--json"]));
    assert_eq!(mended["repair"]["repaired"], planned["repair"]["repaired"]);
    assert_eq!(mended["ok"], true, "{mended}");
    assert_eq!(code(&check(&place, &[])), 0);
    if place.database.is_none() {
        // A start also repairs this without a command of the operator.
        damage();
    }
    let server = place.start();
    let mut http = main_client(&server);
    for _ in 0..5 {
        published(&mut http, "after");
    }
}
