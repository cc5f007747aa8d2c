//! The tests of `main.rs`, all of them, on a PostgreSQL database each.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod access;
mod bridge;
mod catalogue;
mod control;
mod events;
mod hostile;
mod inspect;
mod jobs;
mod large;
mod operate;
mod webhooks;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Postgres;
