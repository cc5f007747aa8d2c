//! The security properties of `docs/security.md` to which the database matters, over PostgreSQL.

mod local_commands;
#[allow(dead_code, reason = "shared with `it`, which uses more of it")]
#[path = "../it/place.rs"]
mod place;
mod receipts;
mod transactions;

mod ledger_kept;

mod permissions;

use consign_testkit::ledger::Backend;

const BACKEND: Backend = Backend::Postgres;
