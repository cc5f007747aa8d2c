//! The security properties of `docs/security.md` to which the database matters, over PostgreSQL.

mod local_commands;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod receipts;
mod transactions;

mod ledger_kept;

mod permissions;

#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/automation_world.rs"]
mod automation_world;
mod starved;

use consign_testkit::ledger::Backend;
use place::binary;

const BACKEND: Backend = Backend::Postgres;
