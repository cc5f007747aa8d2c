//! The engine in simulated time, over each ledger: wakes, loops, keys, receipts.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod bulk;
mod cut_off;
mod keys;
mod long_poll;
mod manual_store;
mod nodes;
mod receipts;
mod schedule;
mod users;
mod work_kit;
mod world;

use consign_testkit::ledger::Backend;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
