//! The real binary as a process, over each ledger: tests that do not depend on the database. Modules whose names begin with
//! `only_postgres_` or `only_sqlite_` run on that database alone: several servers on one database, and the file.

mod automation_beam;
mod automation_mesh;
#[allow(dead_code, reason = "shared with `main`, which uses more of it")]
mod automation_world;
mod beam_apart;
mod beam_bad_days;
mod beam_commands;
mod beam_figures;
mod beam_read_commands;
mod beam_sdk;
mod beam_settings;
mod beam_sockets;
mod beam_workers;
mod beam_world;
mod cli;
mod compat;
mod find;
mod import_beam;
mod mesh_bad_days;
mod mesh_intents;
#[allow(dead_code, reason = "shared with `main`, which uses more of it")]
mod mesh_world;
mod only_postgres_beam;
mod only_postgres_beam_bus;
mod only_postgres_mesh;
mod only_postgres_messages;
mod only_postgres_nodes;
mod only_postgres_pair;
mod only_postgres_transactions_cut;
mod only_postgres_transactions_pair;
mod only_sqlite_transactions_store;
mod operator;
mod place;
mod sockets;
mod start;
mod stop;
mod switches;
mod tls;
mod transactions;
mod transactions_callbacks;
mod transactions_clock;
mod transactions_crash;
mod transactions_crowd;
mod transactions_localstripe;
mod transactions_secrets;
mod transactions_till;
mod transactions_world;
mod worker_run;

use consign_testkit::ledger::Backend;

use place::*;

/// The ledger of this run; see `CONTRIBUTING.md`.
fn backend() -> Backend {
    Backend::selected()
}
