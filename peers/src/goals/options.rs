//! The command line.

use std::path::PathBuf;

use clap::Parser;

const ROUNDS: u64 = 5;
const ROUNDS_QUICK: u64 = 1;

/// Measures our goals that need no other queue, and reports which are reached.
#[derive(Debug, Parser)]
#[command(name = "consign-goals")]
pub(crate) struct Options {
    /// Only these, by name or first word; all by default.
    #[arg(long, value_delimiter = ',')]
    pub(super) only: Vec<String>,

    /// Rounds of each, by default 5, or 1 if quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,

    /// Length of what is measured at full speed, by default 3; latencies take 20 whatever is said here.
    #[arg(long)]
    pub(super) seconds: Option<f64>,

    /// Small numbers, to see that it works; the figures mean nothing.
    #[arg(long)]
    pub(super) quick: bool,

    /// Print the findings as JSON.
    #[arg(long)]
    pub(super) json: bool,

    /// List the goals and end.
    #[arg(long)]
    pub(super) list: bool,

    /// Where servers keep their files while they run; it must be on a real disk.
    #[arg(long, default_value = "/var/tmp")]
    pub(super) dir: PathBuf,

    /// Lock this file during each round of a family of goals, so that other programs that lock it wait.
    #[arg(long)]
    pub(super) lock: Option<PathBuf>,

    /// Our program.
    #[arg(long)]
    pub(super) consign: PathBuf,
}

impl Options {
    pub(super) fn rounds(&self) -> u64 {
        let rounds = if self.quick { ROUNDS_QUICK } else { ROUNDS };
        self.rounds.unwrap_or(rounds)
    }
}
