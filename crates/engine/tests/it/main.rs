//! The engine over the model store, in simulated time: wakes, loops, keys, receipts. `sqlite.rs` and `postgres.rs` run
//! the same tests.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod cut_off;
mod keys;
mod long_poll;
mod manual_store;
mod nodes;
mod receipts;
mod schedule;
mod work_kit;
mod world;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Memory;
