//! The output of a campaign: one line per trial, one per promise, and how to repeat a failure.
#![expect(clippy::print_stdout, reason = "a campaign speaks through its lines")]

use super::findings::Findings;
use super::results::{Outcome, Results};

/// Evidence beyond this is only counted.
const EVIDENCE_MAX: usize = 8;

/// The end of a trial.
pub fn trial(outcome: &Outcome, so_far: &Results) {
    let also = outcome.also.map(|(name, count)| {
        let words = name.replace('_', " ");
        format!("{count} {words}, ")
    });
    println!(
        "{}: {} rounds, {} operations, {}{:.1} s; so far {} kills, {} operations",
        outcome.fault,
        outcome.rounds,
        outcome.operations,
        also.unwrap_or_default(),
        outcome.seconds,
        so_far.kills,
        so_far.operations,
    );
}

/// One line per promise, in the format of Rust's test runner. Returns whether all were kept.
pub fn promises(findings: &Findings) -> bool {
    let (mut passed, mut failed) = (0, 0);
    for (name, evidence, checked) in findings.verdicts() {
        if evidence.is_empty() {
            passed += 1;
            println!("test {name} ... ok ({checked} checked)");
        } else {
            failed += 1;
            println!("test {name} ... FAILED");
            for line in evidence.iter().take(EVIDENCE_MAX) {
                println!("    {line}");
            }
            if evidence.len() > EVIDENCE_MAX {
                println!("    and {} more", evidence.len() - EVIDENCE_MAX);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    failed == 0
}
