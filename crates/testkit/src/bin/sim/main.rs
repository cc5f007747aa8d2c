//! The simulation: the real kernel, engine and group commit in one thread, over a disk, a clock and connections that
//! fail by the choice of a seed. A seed that fails once fails again.
//!
//! `sim [--seed N] [--seeds K] [--steps M] [--minutes M] [--resume | --resume-dirty] [--results FILE] [--revision R]
//! [--known FILE]`. Ends with 0 when every promise was kept, 1 when one was broken, 2 when it could not be carried out.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its lines are its report"
)]

mod acts;
mod batches;
mod campaign;
mod clocks;
mod histories;
mod ledger;
mod log;
mod receipts;
mod run;
mod wakes;
mod words;
mod world;

use std::process::ExitCode;

use campaign::{Campaign, Plan};

fn main() -> ExitCode {
    consign_testkit::plants::from_environment();
    let plan = match Plan::read(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}\n{}", campaign::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut campaign = Campaign::new(plan);
    match campaign.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
