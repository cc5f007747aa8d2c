//! The simulation: the real kernel, engine and group commit, with Beam and the mesh on them, in one thread, with disks, clocks and connections that
//! fail as a seed decides. A failing seed is repeatable.
//!
//! `sim [--seed N] [--seeds K] [--steps M] [--minutes M] [--resume | --resume-dirty] [--results FILE] [--revision R]
//! [--known FILE] [--only intent|beam|mesh]`. Exits with 0 if every promise was kept, 1 if one was broken, 2 if it failed itself.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its lines are its report"
)]

mod batch_checks;
mod beam;
mod client_checks;
mod clocks;
mod describe;
mod ledger_checks;
mod log;
mod machine;
mod mesh;
mod receipt_checks;
mod requests;
mod run;
mod seed_campaign;
mod wake_checks;

use std::process::ExitCode;

use seed_campaign::{SeedCampaign, SimPlan};

fn main() -> ExitCode {
    consign_testkit::plants::from_environment();
    let plan = match SimPlan::read(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}\n{}", seed_campaign::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut campaign = SeedCampaign::new(plan);
    match campaign.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
