//! The real binary as a process, over a SQLite file: start, refusals, requests, stop and crashes. `ledgers.rs` has the tests
//! that do not depend on the file.

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
mod build_info;
mod clock;
mod cut_off;
mod diagnosis;
mod disk;
mod file;
mod health;
mod import;
mod mesh;
mod mesh_clients;
mod mesh_clock;
mod mesh_crash;
mod mesh_disk;
mod mesh_negotiation;
mod mesh_world;
mod openapi;
mod operators;
#[allow(dead_code, reason = "shared with `ledgers`, which uses more of it")]
mod place;
mod store;

use consign_testkit::ledger::Backend;

use place::*;

fn backend() -> Backend {
    Backend::Sqlite
}
