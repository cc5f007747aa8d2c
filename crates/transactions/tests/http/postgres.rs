//! The tests of `main.rs`, all of them, on a PostgreSQL database each.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod compat;
mod described;
mod named;
mod shapes;
mod switches;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Postgres;
