//! The Agent Transaction Protocol (ATP): signed documents, keys and receipts as plain values; payment rails; and the site,
//! which executes transactions on the ledger.
//!
//! Invariant: outside [`rail`], [`site`] and [`http`], nothing in this crate reads a clock, draws random numbers or does IO; times,
//! entropy and bytes are arguments. Status codes and the bodies of responses are in [`http`] alone: an operation returns a value
//! or a [`problem::Problem`]. The one answer whose bytes are stored is rendered by `site::stored_answer`.

/// The semantics that the site announces in its manifest.
pub const SEMANTICS: &str = "atp/1";

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

pub mod http;
