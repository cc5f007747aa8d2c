//! Shared test code: simulated time, a ledger on any backend, a server process, client histories, a disk with faults
//! and power cuts, seeded random choices, planted defects, PostgreSQL, a proxy that can be cut, folders of runs, and
//! campaigns. Without the feature `ours` nothing of this depends on our other crates.

#[cfg(feature = "ours")]
pub mod beam_agents;
pub mod campaign;
#[cfg(feature = "ours")]
pub mod clock;
pub mod disk;
pub mod history;
#[cfg(feature = "ours")]
pub mod ledger;
#[cfg(feature = "ours")]
pub mod mesh_members;
#[cfg(feature = "ours")]
pub mod plants;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod results;
pub mod run_folder;
pub mod seeded_random;
pub mod shim;
pub mod space;
pub mod unprivileged;
