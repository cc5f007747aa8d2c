//! The program that `cargo xtask goals` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    consign_peers::goals()
}
