//! The crash campaign: clients use a real server, faults of six kinds kill it repeatedly, and afterwards every
//! promise is checked.
//!
//! Exits with 0 if every promise was kept, 1 if one was broken (seed, evidence and histories are shown), 2 if the
//! campaign itself failed or did not check every promise.

mod campaign;
mod fault;
mod inject;
mod side_processes;
mod sync_count;
mod trial;
mod workers;

use std::process::ExitCode;

use consign_testkit::campaign::runner;

use campaign::CrashCampaign;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "client") {
        return match workers::run(&words[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => runner::not_carried_out(&error),
        };
    }
    runner::run::<CrashCampaign>(words.into_iter())
}
