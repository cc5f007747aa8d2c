//! Which flags each kind of work uses.
//!
//! Invariant: a flag that the chosen work does not use is refused. Ignoring it would make a result look as if it was
//! measured with that flag.

use super::{Args, WorkArg};
use crate::failure::Failure;

/// A flag that not every work uses.
struct FlagRule {
    flag: &'static str,
    is_given: bool,
    used_by: &'static [WorkArg],
}

/// Work that can be started at a fixed rate.
const PACED: &[WorkArg] = &[
    WorkArg::Cycle,
    WorkArg::Pairs,
    WorkArg::Publish,
    WorkArg::Next,
    WorkArg::Batch,
    WorkArg::Empty,
    WorkArg::Handoff,
    WorkArg::Transact,
    WorkArg::Relay,
    WorkArg::RelaySocket,
];

/// Work of many clients over some time.
const WITH_CLIENTS: &[WorkArg] = &[
    WorkArg::Cycle,
    WorkArg::Pairs,
    WorkArg::Publish,
    WorkArg::Drain,
    WorkArg::Next,
    WorkArg::Batch,
    WorkArg::Empty,
    WorkArg::Handoff,
    WorkArg::Transact,
    WorkArg::Relay,
    WorkArg::RelaySocket,
];

/// Work over some time.
const TIMED: &[WorkArg] = &[
    WorkArg::Cycle,
    WorkArg::Pairs,
    WorkArg::Publish,
    WorkArg::Drain,
    WorkArg::Next,
    WorkArg::Batch,
    WorkArg::Empty,
    WorkArg::Handoff,
    WorkArg::Transact,
    WorkArg::Relay,
    WorkArg::RelaySocket,
    WorkArg::Mesh,
];

/// Work with a report of a single run; the others cannot be drawn.
const DRAWN: &[WorkArg] = &[
    WorkArg::Cycle,
    WorkArg::Pairs,
    WorkArg::Publish,
    WorkArg::Drain,
    WorkArg::Next,
    WorkArg::Batch,
    WorkArg::Empty,
    WorkArg::Handoff,
];

const fn with_clients(flag: &'static str, is_given: bool) -> FlagRule {
    FlagRule {
        flag,
        is_given,
        used_by: WITH_CLIENTS,
    }
}

impl Args {
    pub(super) fn refuse_unused(&self) -> Result<(), Failure> {
        let rules = [
            FlagRule {
                flag: "--batch",
                is_given: self.batch.is_some(),
                used_by: &[WorkArg::Batch],
            },
            FlagRule {
                flag: "--wait",
                is_given: self.wait.is_some(),
                used_by: &[WorkArg::Pairs, WorkArg::Handoff],
            },
            FlagRule {
                flag: "--rate",
                is_given: self.rate.is_some(),
                used_by: PACED,
            },
            with_clients("--clients", self.clients.is_some()),
            FlagRule {
                flag: "--seconds",
                is_given: self.seconds.is_some(),
                used_by: TIMED,
            },
            FlagRule {
                flag: "--warmup",
                is_given: self.warmup.is_some(),
                used_by: TIMED,
            },
            with_clients("--threads", self.threads.is_some()),
            FlagRule {
                flag: "--svg",
                is_given: self.svg.is_some(),
                used_by: DRAWN,
            },
        ];
        let unused = rules
            .iter()
            .find(|rule| rule.is_given && !rule.used_by.contains(&self.work));
        match unused {
            None => Ok(()),
            Some(rule) => Err(Failure::usage(refusal(rule, self.work))),
        }
    }
}

fn refusal(rule: &FlagRule, work: WorkArg) -> String {
    let used_by: Vec<String> = rule.used_by.iter().map(|taker| name(*taker)).collect();
    format!(
        "--work {} does not use {}; it is for --work {}",
        name(work),
        rule.flag,
        used_by.join(", ")
    )
}

/// As it is given on the command line.
fn name(work: WorkArg) -> String {
    let value = clap::ValueEnum::to_possible_value(&work);
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
