//! The real binary as a process: how it starts, refuses, serves, stops and survives. `postgres.rs` runs again what is not
//! about the SQLite file.

mod across;
mod automation;
mod automation_alone;
mod automation_commands;
mod automation_files;
mod automation_parts;
mod automation_reads;
mod automation_service;
mod automation_world;
mod bench;
mod cli;
mod clock;
mod compat;
mod cut_off;
mod disk;
mod file;
mod health;
mod import;
mod openapi;
mod place;
mod sockets;
mod start;
mod stop;
mod store;
mod switches;
mod tls;
mod transactions;
mod transactions_callbacks;
mod transactions_clock;
mod transactions_crash;
mod transactions_crowd;
mod transactions_localstripe;
mod transactions_secrets;
mod transactions_store;
mod transactions_till;
mod transactions_world;

use consign_testkit::ledger::Backend;

use place::*;

const BACKEND: Backend = Backend::Sqlite;
