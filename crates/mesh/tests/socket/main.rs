//! The broker's WebSocket on a real listener: connections, accepted messages, delivery, topics, presence.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod accepting;
mod client;
mod concurrent;
mod delivery;
mod faults;
mod hello;
mod lengths;
mod multicast;
mod only_postgres_nodes;
mod peers;
mod topics;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/socket");
    consign_testkit::ledger::assert_all_listed(folder);
}
