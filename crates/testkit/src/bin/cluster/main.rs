//! The cluster campaign: three nodes over a PostgreSQL that is replicated synchronously, clients that go from node to
//! node, and faults of ten kinds, each healed before the next. What the clients were told is held against the ledger.
//!
//! Ends with 0 when every promise was kept, 1 when one was broken (seed, evidence and histories are shown), 2 when
//! the campaign itself could not be carried out.

mod database;
mod disturb;
mod fault;
mod ground;
mod nodes;
mod outsiders;
mod seats;
mod stretch;

use std::process::ExitCode;

use consign_testkit::campaign::turns;

fn main() -> ExitCode {
    turns::run::<ground::Ground>(std::env::args().skip(1))
}
