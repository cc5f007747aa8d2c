//! The directory, the relay and the message bus over real sockets, as in the server.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod acl;
mod admin;
mod agent_lists;
mod agent_updates;
mod agents;
mod bus;
mod bus_access;
mod bus_reads;
mod bus_restart;
mod bus_retry;
mod delegations;
mod described;
mod directory_bodies;
mod earlier_agents;
mod endpoint;
mod federation;
mod federation_hostile;
mod federation_limits;
mod federation_relay;
mod federation_world;
mod identity;
mod keys;
mod listener_policy;
mod observability;
mod observed;
mod only_postgres_nodes;
mod relay;
mod restart;
mod schema_check;
mod sender_rates;
mod socket;
mod strangers;
mod test_socket;
mod traces;
mod unrouted;
mod worker_grants;
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
