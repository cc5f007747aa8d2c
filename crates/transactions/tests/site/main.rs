//! A site on a real ledger, with a bank that can misbehave on demand.

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

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/site");
    consign_testkit::ledger::assert_all_listed(folder);
}
