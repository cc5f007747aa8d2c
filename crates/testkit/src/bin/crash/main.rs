//! The crash campaign: clients work against a real server, it is killed again and again, and
//! afterwards every promise it made is held against what it knows.
//!
//! `crash --consign BIN --rounds N [--seed S] [--plant NAME]`. Ends with 0 when every promise was
//! kept, 1 when one was broken (seed, evidence and histories are shown), 2 when the campaign itself
//! could not be carried out.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its lines are its report"
)]

mod campaign;
mod chance;
mod clients;
mod findings;
mod leases;
mod syncs;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use campaign::{Campaign, Plan};
use findings::Findings;

const USAGE: &str = "usage: crash --consign BIN --rounds N [--seed S] [--plant NAME]";

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", plan.seed);
    let started = Instant::now();
    let (mut campaign, folder) = match Campaign::prepare(plan) {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let carried_out = campaign.run();
    let findings = &campaign.findings;
    if let Err(error) = carried_out {
        // A server that misbehaves can also derail the campaign; then what was found counts.
        eprintln!("error: {error}");
        if findings.is_clean() {
            let kept = folder.keep();
            eprintln!("histories and log are kept in {}", kept.display());
            return ExitCode::from(2);
        }
    }
    println!(
        "{}, {:.1} s",
        campaign.summary(),
        started.elapsed().as_secs_f64()
    );
    let clean = report(findings);
    if clean {
        return ExitCode::SUCCESS;
    }
    let kept = folder.keep();
    println!(
        "seed {}; histories and log are kept in {}",
        campaign.seed(),
        kept.display()
    );
    ExitCode::from(1)
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
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("{word} {text} is not a number"))
        };
        match word.as_str() {
            "--consign" => consign = Some(PathBuf::from(&value)),
            "--rounds" => rounds = Some(number(&value)?),
            "--seed" => seed = Some(number(&value)?),
            "--plant" => plant = Some(value),
            _ => return Err(format!("{word} is not known")),
        }
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let fresh = since.map_or(1, |since| u64::from(since.subsec_nanos()));
    Ok(Plan {
        consign: consign.ok_or("--consign is missing")?,
        rounds: rounds
            .filter(|rounds| *rounds > 0)
            .ok_or("--rounds must be 1 or more")?,
        seed: seed.unwrap_or(fresh),
        plant,
    })
}
