//! The Agent Transaction Protocol as plain values: signed documents, keys, receipts, and what a rail's answer means.
//!
//! Invariant: nothing here reads a clock, draws randomness or does IO; times, entropy and bytes come in as values.
//! It knows neither the ledger nor HTTP, apart from the status that belongs to each name of an error.

pub mod instant;
pub mod money;
pub mod problem;
pub mod state;

pub mod document;
mod fields;

pub mod intent;
pub mod key;
pub mod request;

pub mod ids;
pub mod keyring;
pub mod receipt;

pub mod callback;
pub mod outcome;
