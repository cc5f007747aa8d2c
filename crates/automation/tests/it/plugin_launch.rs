//! The launcher of confined plugins as a separate program for tests; in the product the main binary has this role.
//!
//! It executes the plugin, and responds itself only if that fails.

#![expect(
    clippy::print_stdout,
    reason = "the answer belongs on standard output, where the plugin's would be"
)]

use std::process::ExitCode;

use consign_automation::plugin::confine;

fn main() -> ExitCode {
    let error = confine::exec(std::env::args_os().skip(1));
    println!("{}", error.answer());
    ExitCode::from(error.exit_code())
}
