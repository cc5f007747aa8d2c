//! The Agent Transaction Protocol: signed documents, keys and receipts as plain values; rails; and a site, which carries
//! transactions out over the ledger.
//!
//! Invariant: but for [`rail`] and [`site`] nothing here reads a clock, draws randomness or does IO; times, entropy and bytes
//! come in as values. HTTP is the face's; all that is known of it here is the status that belongs to each name of an error.

pub mod instant;
pub mod money;
pub mod problem;
pub mod state;

pub mod document;
pub mod envelope;
mod fields;

pub mod intent;
pub mod key;
pub mod request;

pub mod ids;
pub mod keyring;
pub mod receipt;

pub mod callback;
pub mod outcome;

pub mod rail;
pub mod site;
