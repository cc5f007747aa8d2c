//! The cluster campaign: three nodes on a synchronously replicated PostgreSQL, clients that switch between nodes, and
//! faults of ten kinds with a recovery after each. The responses of the clients are compared with the ledger.
//!
//! Exits with 0 if every promise was kept, 1 if one was broken (seed, evidence and histories are shown), 2 if the
//! campaign itself failed or did not check every promise.

mod campaign;
mod database;
mod fault;
mod held_connections;
mod inject;
mod nodes;
mod other_sessions;
mod trial;

use std::process::ExitCode;

use consign_testkit::campaign::runner;

fn main() -> ExitCode {
    runner::run::<campaign::ClusterCampaign>(std::env::args().skip(1))
}
