//! A site on a real ledger, with a bank that can misbehave on demand. `postgres.rs` runs the same tests.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod authorize;
mod bank;
mod bounds;
mod compat;
mod compensate;
mod ends;
mod execute;
mod keys;
mod limits;
mod outcomes;
mod recovery;
mod refusals;
mod signed;
mod tool;
mod verifiers;
mod worker;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Sqlite;

#[test]
fn every_file_of_tests_runs_on_both_databases() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/site");
    consign_testkit::ledger::assert_all_listed(folder, &["main.rs", "postgres.rs"]);
}
