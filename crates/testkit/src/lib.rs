//! What tests share: simulated time, a ledger on any backend, a server process to talk to, histories of its clients, a disk
//! that fails on request or loses its power, choices that a seed repeats, planted defects, PostgreSQL, wires that can be cut,
//! folders of runs that may be killed, and what campaigns have in common. Without the feature `ours` nothing of this
//! depends on our other crates.

pub mod campaign;
#[cfg(feature = "ours")]
pub mod clock;
pub mod disk;
pub mod history;
#[cfg(feature = "ours")]
pub mod ledger;
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
