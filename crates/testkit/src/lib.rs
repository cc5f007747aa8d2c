//! What tests share: simulated time, a ledger on any backend, a server process to talk to, histories of its clients, a disk
//! that fails on request or loses its power, choices that a seed repeats, planted defects, PostgreSQL, wires that can be cut,
//! and what campaigns have in common.

pub mod campaign;
pub mod chance;
pub mod clock;
pub mod disk;
pub mod history;
pub mod ledger;
pub mod plants;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod results;
pub mod shim;
pub mod space;
