//! The one binary: server, command line, wiring.
//!
//! Invariant: only this crate reads the environment and the command line; all other crates receive values. It has no
//! rules about intents.

mod claudemesh;
mod cli;
mod commands;
mod config;
mod confirm;
mod data_dir;
mod ductile;
mod duration_arg;
mod failure;
mod figures;
mod host_name;
mod input;
#[cfg(test)]
mod input_property_tests;
mod ledger_location;
mod ledger_trouble;
mod link;
mod lock;
mod mesh_member;
mod out;
mod planted;
mod render;
mod secrets;
mod serve;
mod system;
mod usage;
mod verbose;
mod worker;

use std::process::ExitCode;

use consign_automation::plugin::confine;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::disable_transparent_huge_pages;

use crate::cli::Cli;
use crate::commands::daemon::launch::DaemonLaunch;

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
    if cli::is_daemon() {
        use_small_pages();
    }
    if let Some(launch) = DaemonLaunch::from_arguments() {
        let ended = launch.run();
        return ended.unwrap_or_else(|error| failure::report(&error)).into();
    }
    if ductile::is_called() {
        return ductile::run();
    }
    if claudemesh::is_called() {
        return claudemesh::run();
    }
    let ended = match Cli::from_arguments() {
        Ok(cli) => {
            planted::arm_failpoint();
            cli.run()
        }
        Err(error) => usage::report(&error, false),
    };
    let exit = ended.unwrap_or_else(|error| failure::report(&error));
    exit.into()
}

/// Secrets come from variables and are in memory. Other processes of the same user, plugins above all, could read
/// both from `/proc`, trace this process or take its core dump; from here on only root can. A plugin is a separate
/// program and not protected.
fn hide_memory() {
    // If the kernel refuses, the program continues without this protection.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// A daemon uses a few megabytes, which huge pages would multiply.
fn use_small_pages() {
    // If the kernel refuses, the daemon takes more memory.
    let _ = disable_transparent_huge_pages(true);
}

/// Returns only if the plugin cannot be executed; then it reports the error in the plugin's format.
fn become_plugin() -> ExitCode {
    let error = confine::exec(std::env::args_os().skip(2));
    // Nothing can be reported if this fails too.
    let _ = out::data(&error.answer());
    ExitCode::from(error.exit_code())
}
