//! The one binary: server, command line, wiring.
//!
//! Invariant: only this crate reads the environment and the command line; everything below it
//! receives values. It has no rules of its own about intents.

mod cli;
mod commands;
mod config;
mod confirm;
mod data_dir;
mod ductile;
mod failure;
#[cfg(test)]
mod foreign_values_tests;
mod input;
mod link;
mod lock;
mod out;
mod place;
mod planted;
mod render;
mod secrets;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if ductile::is_called() {
        return ductile::run();
    }
    let cli = Cli::parse();
    planted::arm_failpoint();
    let exit = match cli.run() {
        Ok(exit) => exit,
        Err(error) => failure::report(&error),
    };
    exit.into()
}
