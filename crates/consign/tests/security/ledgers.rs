//! The security properties that depend on the database, tested over each ledger.

#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/automation_world.rs"]
mod automation_world;
mod ledger_kept;
mod local_commands;
mod permissions;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod receipts;
mod signatures;
mod starved;
mod transactions;

use consign_testkit::ledger::Backend;

use place::binary;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
