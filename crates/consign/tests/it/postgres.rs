//! Servers on PostgreSQL: what `main.rs` demands of any server, on a database each, and several servers on one.

mod cli;
mod compat;
mod nodes;
mod pair;
mod place;
mod sockets;
mod start;
mod stop;
mod switches;
mod tls;

use consign_testkit::ledger::Backend;

use place::*;

const BACKEND: Backend = Backend::Postgres;
