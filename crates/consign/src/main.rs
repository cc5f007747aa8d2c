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
mod input;
#[cfg(test)]
mod input_property_tests;
mod ledger_location;
mod link;
mod lock;
mod out;
mod planted;
mod render;
mod secrets;
mod serve;
mod system;
mod usage;

use std::process::ExitCode;

use clap::Parser;
use consign_automation::plugin::confine;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The first argument of a process that confines itself and becomes a plugin.
const PLUGIN_LAUNCH: &str = "plugin-launch";

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == PLUGIN_LAUNCH)
    {
        return become_plugin();
    }
    hide_memory();
    if ductile::is_called() {
        return ductile::run();
    }
    let ended = match Cli::try_parse() {
        Ok(cli) => {
            planted::arm_failpoint();
            cli.run()
        }
        Err(error) => usage::report(&error, false),
    };
    let exit = ended.unwrap_or_else(|error| failure::report(&error));
    exit.into()
}

/// Secrets come in by variables and lie in memory. Other processes of the same user, plugins above all, could read both from
/// `/proc`, trace this process or take its core dump; from here on only root can. A plugin is a program of its own and as open as any.
fn hide_memory() {
    // A kernel that refuses is no reason to do nothing at all.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Returns only if there is no plugin to become; then it answers in the plugin's place.
fn become_plugin() -> ExitCode {
    let error = confine::exec(std::env::args_os().skip(2));
    // Nobody is left to be told if this fails too.
    let _ = out::data(&error.answer());
    ExitCode::from(error.exit_code())
}
