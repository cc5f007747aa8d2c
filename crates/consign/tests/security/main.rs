//! The security properties of `docs/security.md`, proven against the real binary over SQLite. Each test name begins with the
//! row that it proves, such as `s4_`. `postgres.rs` runs again what the database matters to.

#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/automation_world.rs"]
mod automation_world;
mod first_start;
mod guessing;
mod guessing_automation;
mod ledger_automation;
mod ledger_files;
mod ledger_kept;
mod listener;
mod local_commands;
mod masking;
mod memory;
mod open_files;
mod permissions;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod programs;
mod receipts;
mod sandbox;
mod signatures;
mod slow_heads;
mod starved;
mod transactions;
mod unwritable;

use consign_testkit::ledger::Backend;

use place::binary;

const BACKEND: Backend = Backend::Sqlite;
