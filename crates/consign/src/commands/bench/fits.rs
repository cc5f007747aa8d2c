//! Which flags belong to which work.
//!
//! Invariant: a flag that the chosen work would not look at is refused. Ignored, it would let a
//! figure pass for one that was measured otherwise than it was.

use super::{Args, WorkArg};
use crate::failure::Failure;

/// A flag that not every work takes.
struct Rule {
    flag: &'static str,
    is_given: bool,
    takers: &'static [WorkArg],
}

impl Args {
    pub(super) fn refuse_unused(&self) -> Result<(), Failure> {
        let rules = [
            Rule {
                flag: "--batch",
                is_given: self.batch.is_some(),
                takers: &[WorkArg::Batch],
            },
            Rule {
                flag: "--wait",
                is_given: self.wait.is_some(),
                takers: &[WorkArg::Pairs, WorkArg::Handoff],
            },
        ];
        let unused = rules
            .iter()
            .find(|rule| rule.is_given && !rule.takers.contains(&self.work));
        match unused {
            None => Ok(()),
            Some(rule) => Err(Failure::usage(refusal(rule, self.work))),
        }
    }
}

fn refusal(rule: &Rule, work: WorkArg) -> String {
    let takers: Vec<String> = rule.takers.iter().map(|taker| name(*taker)).collect();
    format!(
        "--work {} does nothing with {}; it is for --work {}",
        name(work),
        rule.flag,
        takers.join(", ")
    )
}

/// As it is given on the command line.
fn name(work: WorkArg) -> String {
    let value = clap::ValueEnum::to_possible_value(&work);
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
