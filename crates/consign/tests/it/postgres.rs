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
mod transactions;
mod transactions_callbacks;
mod transactions_clock;
mod transactions_crash;
mod transactions_crowd;
mod transactions_cut;
mod transactions_localstripe;
mod transactions_pair;
mod transactions_secrets;
mod transactions_till;
mod transactions_world;

use consign_testkit::ledger::Backend;

use place::*;

const BACKEND: Backend = Backend::Postgres;
