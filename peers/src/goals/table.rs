//! The goals themselves: what is wanted, and how its figure is made of what was measured.

use serde::Serialize;

use super::probe::Probe::{
    Batch, Cycle, Empty, FewWaiting, Finished, Handoff, Long, ManyWaiting, Next, One, Restart,
    Signed, Sqlite, Sync, Transact,
};
use super::probe::{Probe, Read};
use super::{Shots, Verdict};
use crate::error::Error;
use crate::subject::is_called;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Goal {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) wanted: Wanted,
    pub(super) unit: &'static str,
    #[serde(skip)]
    pub(super) figure: Figure,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}
use Wanted::{AtLeast, AtMost};

/// A number of one measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of(Probe, Read);

/// How the figure of a round is made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Figure {
    Plain(Of),
    /// The first divided by the second.
    Ratio(Of, Of),
    /// The first without the second.
    Beyond(Of, Of),
}
use Figure::{Beyond, Plain, Ratio};

const CYCLES: Of = Of(Cycle, Read::Cycles);
const SYNC: Of = Of(Sync, Read::P50("sync"));

/// Goals that share measurements stand together.
pub(super) const FAMILIES: &[&[Goal]] = &[
    &[
        ratio(
            "empty",
            "cycles against three empty posts",
            AtLeast(0.45),
            Ratio(CYCLES, Of(Empty, Read::Cycles)),
        ),
        ratio(
            "next",
            "settle and claim in one request against three requests",
            AtLeast(1.3),
            Ratio(Of(Next, Read::Cycles), CYCLES),
        ),
    ],
    &[ratio(
        "batch",
        "batches of 64 against bare SQLite in commits of 64",
        AtLeast(0.3),
        Ratio(Of(Batch, Read::Cycles), Of(Sqlite, Read::Cycles)),
    )],
    &[ratio(
        "sync",
        "publish p50 of one client against append and sync of 4096 bytes",
        AtMost(2.0),
        Ratio(Of(One, Read::P50("publish")), SYNC),
    )],
    &[
        in_unit(
            "p99-publish",
            "p99 of publish in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Of(Long, Read::P99("publish"))),
        ),
        in_unit(
            "p99-claim",
            "p99 of claim in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Of(Long, Read::P99("claim"))),
        ),
        in_unit(
            "p99-fulfil",
            "p99 of fulfil in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Of(Long, Read::P99("fulfil"))),
        ),
    ],
    &[ratio(
        "backlog",
        "cycles beside 1,000,000 waiting, mixed, against 1,000",
        AtLeast(0.85),
        Ratio(Of(ManyWaiting, Read::Cycles), Of(FewWaiting, Read::Cycles)),
    )],
    &[ratio(
        "finished",
        "cycles beside 1,000,000 finished against none",
        AtLeast(0.85),
        Ratio(Of(Finished, Read::Cycles), CYCLES),
    )],
    &[
        in_unit(
            "handoff-p50",
            "publish to a waiting claim beyond one sync",
            AtMost(1.0),
            "ms",
            Beyond(Of(Handoff, Read::P50("handoff")), SYNC),
        ),
        in_unit(
            "handoff-p99",
            "its p99, beyond the median sync",
            AtMost(5.0),
            "ms",
            Beyond(Of(Handoff, Read::P99("handoff")), SYNC),
        ),
    ],
    &[
        in_unit(
            "memory-idle",
            "memory just after the start",
            AtMost(25.0),
            "MB",
            Plain(Of(Restart, Read::IdleMegabytes)),
        ),
        in_unit(
            "memory-loaded",
            "memory with 1,000,000 waiting",
            AtMost(150.0),
            "MB",
            Plain(Of(Restart, Read::LoadedMegabytes)),
        ),
        in_unit(
            "disk",
            "disk of one of 1,000,000 waiting",
            AtMost(600.0),
            "B",
            Plain(Of(Restart, Read::DiskBytesEach)),
        ),
        in_unit(
            "restart",
            "killed with 1,000,000 waiting, start to first claim, slowest of five",
            AtMost(1.0),
            "s",
            Plain(Of(Restart, Read::FirstClaimSeconds)),
        ),
    ],
    &[ratio(
        "signed",
        "signed beside 1,000,000 nonces against unsigned",
        AtLeast(0.8),
        Ratio(Of(Signed, Read::Cycles), CYCLES),
    )],
    &[
        ratio(
            "transactions",
            "agents' transactions against cycles, on the same server",
            AtLeast(0.3),
            Plain(Of(Transact, Read::TransactionsPerCycle)),
        ),
        in_unit(
            "receipt",
            "an agent's receipt, read and verified",
            AtMost(150.0),
            "us",
            Plain(Of(Transact, Read::ReceiptMicros)),
        ),
    ],
];

const fn ratio(name: &'static str, about: &'static str, wanted: Wanted, figure: Figure) -> Goal {
    in_unit(name, about, wanted, "", figure)
}

const fn in_unit(
    name: &'static str,
    about: &'static str,
    wanted: Wanted,
    unit: &'static str,
    figure: Figure,
) -> Goal {
    Goal {
        name,
        about,
        wanted,
        unit,
        figure,
    }
}

impl Goal {
    pub(super) fn judge(&self, found: f64) -> Verdict {
        let is_reached = match self.wanted {
            AtLeast(least) => found >= least,
            AtMost(most) => found <= most,
        };
        if is_reached {
            Verdict::Reached
        } else {
            Verdict::NotReached
        }
    }
}

impl Of {
    fn of(self, shots: &Shots) -> Option<f64> {
        let Self(probe, read) = self;
        read.from(&shots.get(&probe)?.report)
    }
}

impl Figure {
    pub(super) fn of(self, shots: &Shots) -> Option<f64> {
        match self {
            Plain(of) => of.of(shots),
            Ratio(ours, theirs) => {
                let theirs = theirs.of(shots).filter(|theirs| *theirs > 0.0)?;
                Some(ours.of(shots)? / theirs)
            }
            Beyond(whole, part) => Some(whole.of(shots)? - part.of(shots)?),
        }
    }

    fn parts(self) -> Vec<Of> {
        match self {
            Plain(of) => vec![of],
            Ratio(first, second) | Beyond(first, second) => vec![first, second],
        }
    }

    fn probes(self) -> impl Iterator<Item = Probe> {
        self.parts().into_iter().map(|Of(probe, _)| probe)
    }

    /// The measurements that stolen time would have spoiled.
    pub(super) fn timed_probes(self) -> impl Iterator<Item = Probe> {
        let timed = self
            .parts()
            .into_iter()
            .filter(|Of(_, read)| read.is_timed());
        timed.map(|Of(probe, _)| probe)
    }
}

/// What a family needs, each once.
pub(super) fn probes(family: &[Goal]) -> Vec<Probe> {
    let mut probes = Vec::new();
    for probe in family.iter().flat_map(|goal| goal.figure.probes()) {
        if !probes.contains(&probe) {
            probes.push(probe);
        }
    }
    probes
}

/// The goals named, in their families.
pub(super) fn chosen(only: &[String]) -> Result<Vec<Vec<Goal>>, Error> {
    let is_known = |word: &&String| {
        let mut goals = FAMILIES.iter().copied().flatten();
        goals.any(|goal| is_called(goal.name, word))
    };
    if let Some(word) = only.iter().find(|word| !is_known(word)) {
        let message = format!("there is no goal `{word}`; see --list");
        return Err(Error::Program(message));
    }
    let is_wanted =
        |goal: &&Goal| only.is_empty() || only.iter().any(|word| is_called(goal.name, word));
    let families = FAMILIES
        .iter()
        .map(|family| family.iter().filter(is_wanted).copied().collect());
    Ok(families
        .filter(|family: &Vec<Goal>| !family.is_empty())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|&word| word.to_owned()).collect();
        let families = chosen(&only).unwrap();
        families.iter().flatten().map(|goal| goal.name).collect()
    }

    #[test]
    fn goals_are_chosen_by_name_or_first_word() {
        assert_eq!(names(&["p99"]), ["p99-publish", "p99-claim", "p99-fulfil"]);
        assert_eq!(names(&["signed", "memory-idle"]), ["memory-idle", "signed"]);
        assert!(chosen(&["sing".to_owned()]).is_err());
        let mut all = names(&[]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), names(&[]).len(), "names are unique");
    }

    #[test]
    fn a_family_measures_what_its_goals_share_once() {
        assert_eq!(probes(FAMILIES[0]), [Cycle, Empty, Next]);
        let only = chosen(&["next".to_owned()]).unwrap();
        assert_eq!(probes(&only[0]), [Next, Cycle]);
    }

    #[test]
    fn stolen_time_spoils_figures_of_time_alone() {
        let timed = |name: &str| {
            let goal = chosen(&[name.to_owned()]).unwrap()[0][0];
            goal.figure.timed_probes().collect::<Vec<_>>()
        };
        assert_eq!(timed("restart"), [Restart]);
        assert_eq!(timed("signed"), [Signed, Cycle]);
        assert_eq!(timed("disk"), []);
    }

    #[test]
    fn a_goal_is_reached_from_the_right_side() {
        let goal = |name: &str| chosen(&[name.to_owned()]).unwrap()[0][0];
        assert_eq!(goal("empty").judge(0.44), Verdict::NotReached);
        assert_eq!(goal("empty").judge(0.45), Verdict::Reached);
        assert_eq!(goal("disk").judge(601.0), Verdict::NotReached);
    }
}
