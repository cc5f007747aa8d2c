//! The rules of Consign: what an intent is, which steps it may take, and what each command decides.
//!
//! Invariant: nothing in this crate reads a clock, draws randomness or does IO.
//! Time, entropy and stored rows come in as values, so the same inputs give the same decision on any machine.
//! It knows no wire format and no SQL.

pub mod error;
pub mod error_text;
pub mod ids;
pub mod limits;
pub mod state;

pub mod fact;
pub mod intent;
pub mod lane;
pub mod once;
pub mod profile;
pub mod record;
pub mod retry;

pub mod command;
pub mod decide;

pub mod filter;
pub mod json;
pub mod receipt;

pub mod plant;
