//! The routes of the broker over a real ledger, as they are mounted in the server.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod blobs;
mod described;
mod join;
mod keys;
mod leave;
mod messages;
mod metrics;
mod operators;
mod roles;
mod schema_check;
mod subscriptions;
mod upkeep;
mod workers;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http");
    consign_testkit::ledger::assert_all_listed(folder);
}
