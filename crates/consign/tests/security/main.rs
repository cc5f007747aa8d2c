//! The security properties of `docs/security.md`, tested against the real binary over SQLite. Each test name begins with the
//! row that it tests, such as `s4_`. `ledgers.rs` has those that depend on the database.

#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/automation_world.rs"]
mod automation_world;
mod beam;
mod first_start;
mod guessing;
mod guessing_automation;
mod ledger_automation;
mod ledger_files;
mod listener;
mod masking;
mod memory;
mod open_files;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod programs;
mod sandbox;
mod slow_heads;
mod unwritable;

use consign_testkit::ledger::Backend;

use place::binary;

fn backend() -> Backend {
    Backend::Sqlite
}
