//! The crash campaign: clients work against a real server, faults of six kinds end it again and again, and
//! afterwards every promise it made is held against what it knows.
//!
//! Ends with 0 when every promise was kept, 1 when one was broken (seed, evidence and histories are shown), 2 when
//! the campaign itself could not be carried out. [`USAGE`] has the flags.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its lines are its report"
)]

mod aside;
mod campaign;
mod clients;
mod disturb;
mod fault;
mod findings;
mod leases;
mod results;
mod space;
mod stretch;
mod syncs;
mod verify;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use campaign::{Campaign, Plan};
use consign_testkit::results::Revision;
use fault::Fault;
use findings::Findings;
use results::Results;

const USAGE: &str = "usage: crash --consign BIN [--rounds N] [--minutes M] [--seed S] [--fault NAME]... \
                     [--plant NAME] [--results FILE] [--revision R] [--resume | --resume-dirty]";
/// A slice of a campaign; more is done by resuming it.
const MINUTES_MAX: u64 = 30;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "client") {
        return match workers::run(&words[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => not_carried_out(&error),
        };
    }
    let plan = match plan(words.into_iter()) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", plan.seed);
    if let Some(told) = &plan.before.left_aside {
        println!("{told}");
    }
    let mut campaign = match Campaign::prepare(plan) {
        Ok(prepared) => prepared,
        Err(error) => return not_carried_out(&error),
    };
    let carried_out = campaign.run(|stretch, so_far| {
        println!(
            "{}{}: {} rounds, {} operations, {} writes lost or torn, {:.1} s; so far {} kills, {} operations",
            stretch.fault.name(),
            stretch.about,
            stretch.rounds,
            stretch.operations,
            stretch.lost_writes,
            stretch.seconds,
            so_far.kills,
            so_far.operations,
        );
    });
    // A server that misbehaves can also derail the campaign; then what was found counts.
    let clean = campaign.findings.is_clean();
    if let Err(error) = carried_out {
        let exit = not_carried_out(&error);
        if clean {
            eprintln!("repeat with: {}", campaign.repeat());
            eprintln!(
                "histories, data and log are kept in {}",
                campaign.keep().display()
            );
            return exit;
        }
    }
    let results = campaign.results();
    println!(
        "{} kills, {} operations, {:.1} s",
        results.kills, results.operations, results.seconds
    );
    if report(&campaign.findings) {
        return ExitCode::SUCCESS;
    }
    println!("repeat with: {}", campaign.repeat());
    println!(
        "histories, data and log are kept in {}",
        campaign.keep().display()
    );
    ExitCode::from(1)
}

fn not_carried_out(error: &std::io::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

/// One line per promise, in the form of Rust's own test runner.
fn report(findings: &Findings) -> bool {
    let (mut passed, mut failed) = (0, 0);
    for (name, evidence, checked) in findings.verdicts() {
        if evidence.is_empty() {
            passed += 1;
            println!("test {name} ... ok ({checked} checked)");
        } else {
            failed += 1;
            println!("test {name} ... FAILED");
            for line in evidence.iter().take(8) {
                println!("    {line}");
            }
            if evidence.len() > 8 {
                println!("    and {} more", evidence.len() - 8);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    failed == 0
}

fn plan(mut words: impl Iterator<Item = String>) -> Result<Plan, String> {
    let (mut consign, mut rounds, mut seed, mut plant) = (None, None, None, None);
    let (mut minutes, mut results, mut revision) = (None, None, Revision::default());
    let (mut resume, mut dirty) = (false, false);
    let mut faults = Vec::new();
    while let Some(word) = words.next() {
        if word == "--resume" || word == "--resume-dirty" {
            resume = true;
            dirty |= word == "--resume-dirty";
            continue;
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("{word} {text} is not a number"))
        };
        match word.as_str() {
            "--consign" => consign = Some(PathBuf::from(&value)),
            "--rounds" => rounds = Some(number(&value)?),
            "--minutes" => minutes = Some(number(&value)?),
            "--seed" => seed = Some(number(&value)?),
            "--fault" => faults.push(Fault::named(&value)?),
            "--plant" => plant = Some(value),
            "--results" => results = Some(PathBuf::from(value)),
            "--revision" => revision = Revision::from(value),
            _ => return Err(format!("{word} is not known")),
        }
    }
    if rounds.is_none() && minutes.is_none() {
        return Err("--rounds or --minutes is missing".to_owned());
    }
    let (before, seed) = if resume {
        let path = results.ok_or("--resume needs --results")?;
        revision.demand_resumable(dirty)?;
        Results::resume(&path, revision, seed)
            .map_err(|error| format!("{}: {error}", path.display()))?
    } else {
        (
            Results::fresh(results, revision),
            seed.unwrap_or_else(fresh_seed),
        )
    };
    Ok(Plan {
        consign: consign.ok_or("--consign is missing")?,
        rounds: rounds.unwrap_or(u64::MAX),
        limit: Duration::from_secs(60 * minutes.unwrap_or(MINUTES_MAX).min(MINUTES_MAX)),
        seed,
        plant,
        faults: if faults.is_empty() {
            Fault::ALL.to_vec()
        } else {
            faults
        },
        before,
    })
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| u64::from(since.subsec_nanos()))
}
