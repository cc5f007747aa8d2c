//! The crash campaign: clients work against a real server, faults of six kinds end it again and again, and
//! afterwards every promise it made is held against what it knows.
//!
//! Ends with 0 when every promise was kept, 1 when one was broken (seed, evidence and histories are shown), 2 when
//! the campaign itself could not be carried out.

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
