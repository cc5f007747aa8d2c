//! The cluster campaign: three nodes over a PostgreSQL that is replicated synchronously, clients that go from node to
//! node, and faults of ten kinds, each healed before the next. What the clients were told is held against the ledger.
//!
//! Ends with 0 when every promise was kept, 1 when one was broken (seed, evidence and histories are shown), 2 when
//! the campaign itself could not be carried out.

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
