//! Servers on PostgreSQL: what `main.rs` demands of any server, on a database each, and several servers on one.

mod cli;
mod nodes;
mod pair;
mod place;
mod sockets;
mod start;
mod stop;
mod switches;
mod tls;
mod transactions;

use consign_testkit::ledger::Backend;

use place::*;

const BACKEND: Backend = Backend::Postgres;
