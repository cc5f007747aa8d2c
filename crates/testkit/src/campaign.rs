//! Shared parts of campaigns: clients with histories, the checks of these histories, trials, results.
//!
//! A campaign is a program that runs clients against real servers, injects faults, and compares the responses that
//! the clients received with the state of the ledger afterwards. Each program defines its own faults.

#[cfg(feature = "ours")]
pub mod beam;
pub mod client_pool;
pub mod clients;
pub mod endpoints;
pub mod findings;
pub mod leases;
#[cfg(feature = "ours")]
pub mod mesh;
pub mod plan;
pub mod report;
pub mod results;
pub mod runner;
pub mod setup;
#[cfg(feature = "ours")]
mod socket;
pub mod trial;
pub mod verify;
