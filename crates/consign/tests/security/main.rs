//! The security properties of `docs/security.md`, proven against the real binary over SQLite. Each test name begins with the
//! row that it proves, such as `s4_`. `postgres.rs` runs again what the database matters to.

mod local_commands;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod receipts;
mod transactions;

mod guessing;
mod listener;
mod unwritable;

mod ledger_automation;
mod ledger_files;
mod ledger_kept;

mod permissions;

#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/automation_world.rs"]
mod automation_world;
mod first_start;
mod masking;
mod memory;
mod programs;
mod sandbox;
mod starved;

use consign_testkit::ledger::Backend;
use place::binary;

const BACKEND: Backend = Backend::Sqlite;
