//! The tests of `main.rs`, all of them, on a PostgreSQL database each.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod authorize;
mod bank;
mod bounds;
mod compat;
mod compensate;
mod ends;
mod execute;
mod keys;
mod limits;
mod outcomes;
mod recovery;
mod refusals;
mod signed;
mod tool;
mod verifiers;
mod worker;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Postgres;
