//! The launcher of confined plugins as a program of its own, for the tests; in the product its one program plays this part.
//!
//! It becomes the plugin; only if it cannot does it answer in its place.

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
