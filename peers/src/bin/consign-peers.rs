//! The program that `cargo xtask peers` starts once the peers are installed.

use std::process::ExitCode;

fn main() -> ExitCode {
    consign_peers::peers()
}
