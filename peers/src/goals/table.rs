//! The goals: their target values, and how each figure is computed from the measurements.

use serde::Serialize;

use super::probe::Probe::{
    Batch, Cycle, Empty, FewWaiting, Finished, Handoff, IdleSockets, Long, ManyWaiting, Mesh, Next,
    One, Relay, RelaySocket, Restart, Signed, Sqlite, Sync, Transact,
};
use super::probe::{Metric, Probe};
use super::{Measurements, Verdict};
use crate::error::Error;
use crate::subject::has_name;

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

/// One metric of one probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading(Probe, Metric);

/// How the figure of a round is computed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Figure {
    Plain(Reading),
    /// The first divided by the second.
    Ratio(Reading, Reading),
    /// The first minus the second.
    Beyond(Reading, Reading),
}
use Figure::{Beyond, Plain, Ratio};

const CYCLES: Reading = Reading(Cycle, Metric::Cycles);
const SYNC: Reading = Reading(Sync, Metric::P50("sync"));

/// Goals that share measurements, grouped in families.
pub(super) const FAMILIES: &[&[Goal]] = &[
    &[
        ratio(
            "empty",
            "cycles against three empty posts",
            AtLeast(0.45),
            Ratio(CYCLES, Reading(Empty, Metric::Cycles)),
        ),
        ratio(
            "next",
            "settle and claim in one request against three requests",
            AtLeast(1.3),
            Ratio(Reading(Next, Metric::Cycles), CYCLES),
        ),
    ],
    &[ratio(
        "batch",
        "batches of 64 against bare SQLite in commits of 64",
        AtLeast(0.3),
        Ratio(
            Reading(Batch, Metric::Cycles),
            Reading(Sqlite, Metric::Cycles),
        ),
    )],
    &[ratio(
        "sync",
        "publish p50 of one client against append and sync of 4096 bytes",
        AtMost(2.0),
        Ratio(Reading(One, Metric::P50("publish")), SYNC),
    )],
    &[
        in_unit(
            "p99-publish",
            "p99 of publish in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Reading(Long, Metric::P99("publish"))),
        ),
        in_unit(
            "p99-claim",
            "p99 of claim in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Reading(Long, Metric::P99("claim"))),
        ),
        in_unit(
            "p99-fulfil",
            "p99 of fulfil in a run of 20 s",
            AtMost(5.0),
            "ms",
            Plain(Reading(Long, Metric::P99("fulfil"))),
        ),
    ],
    &[ratio(
        "backlog",
        "cycles beside 1,000,000 waiting, mixed, against 1,000",
        AtLeast(0.85),
        Ratio(
            Reading(ManyWaiting, Metric::Cycles),
            Reading(FewWaiting, Metric::Cycles),
        ),
    )],
    &[ratio(
        "finished",
        "cycles beside 1,000,000 finished against none",
        AtLeast(0.85),
        Ratio(Reading(Finished, Metric::Cycles), CYCLES),
    )],
    &[
        in_unit(
            "handoff-p50",
            "publish to a waiting claim beyond one sync",
            AtMost(1.0),
            "ms",
            Beyond(Reading(Handoff, Metric::P50("handoff")), SYNC),
        ),
        in_unit(
            "handoff-p99",
            "its p99, beyond the median sync",
            AtMost(5.0),
            "ms",
            Beyond(Reading(Handoff, Metric::P99("handoff")), SYNC),
        ),
    ],
    &[
        in_unit(
            "memory-idle",
            "memory just after the start",
            AtMost(25.0),
            "MB",
            Plain(Reading(Restart, Metric::IdleMegabytes)),
        ),
        in_unit(
            "memory-loaded",
            "memory with 1,000,000 waiting",
            AtMost(150.0),
            "MB",
            Plain(Reading(Restart, Metric::LoadedMegabytes)),
        ),
        in_unit(
            "disk",
            "disk of one of 1,000,000 waiting",
            AtMost(600.0),
            "B",
            Plain(Reading(Restart, Metric::DiskBytesEach)),
        ),
        in_unit(
            "restart",
            "killed with 1,000,000 waiting, start to first claim, slowest of five",
            AtMost(1.0),
            "s",
            Plain(Reading(Restart, Metric::FirstClaimSeconds)),
        ),
    ],
    &[ratio(
        "signed",
        "signed beside 1,000,000 nonces against unsigned",
        AtLeast(0.8),
        Ratio(Reading(Signed, Metric::Cycles), CYCLES),
    )],
    &[
        ratio(
            "transactions",
            "agents' transactions against cycles, on the same server",
            AtLeast(0.3),
            Plain(Reading(Transact, Metric::TransactionsPerCycle)),
        ),
        in_unit(
            "receipt",
            "an agent's receipt, read and verified",
            AtMost(150.0),
            "us",
            Plain(Reading(Transact, Metric::ReceiptMicros)),
        ),
    ],
    &[
        ratio(
            "relay-http",
            "signed intents of Beam over HTTP against cycles, on the same server",
            AtLeast(0.3),
            Plain(Reading(Relay, Metric::IntentsPerCycle)),
        ),
        ratio(
            "relay-http-p99",
            "p99 of such an intent against its p50",
            AtMost(5.0),
            Plain(Reading(Relay, Metric::P99PerP50)),
        ),
        ratio(
            "relay-socket",
            "the same intents over sockets against cycles",
            AtLeast(0.3),
            Plain(Reading(RelaySocket, Metric::IntentsPerCycle)),
        ),
        ratio(
            "relay-socket-p99",
            "p99 of such an intent against its p50",
            AtMost(5.0),
            Plain(Reading(RelaySocket, Metric::P99PerP50)),
        ),
        in_unit(
            "relay-memory",
            "memory of an idle socket, 1,000 agents and 1,000 feeds",
            AtMost(40.0),
            "KB",
            Plain(Reading(IdleSockets, Metric::KilobytesPerSocket)),
        ),
    ],
    &[
        ratio(
            "mesh-send",
            "messages accepted by a mesh daemon from 16 clients against publishes",
            AtLeast(0.5),
            Plain(Reading(Mesh, Metric::MessagesPerPublish)),
        ),
        ratio(
            "mesh-drain",
            "its backlog of 100,000, drained, against messages from an empty outbox",
            AtLeast(0.5),
            Plain(Reading(Mesh, Metric::DrainRatio)),
        ),
        in_unit(
            "mesh-memory",
            "memory of an idle daemon",
            AtMost(20.0),
            "MB",
            Plain(Reading(Mesh, Metric::IdleDaemonMegabytes)),
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

impl Reading {
    fn of(self, measurements: &Measurements) -> Option<f64> {
        let Self(probe, read) = self;
        read.from(&measurements.get(&probe)?.report)
    }
}

impl Figure {
    pub(super) fn of(self, measurements: &Measurements) -> Option<f64> {
        match self {
            Plain(of) => of.of(measurements),
            Ratio(ours, theirs) => {
                let theirs = theirs.of(measurements).filter(|theirs| *theirs > 0.0)?;
                Some(ours.of(measurements)? / theirs)
            }
            Beyond(whole, part) => Some(whole.of(measurements)? - part.of(measurements)?),
        }
    }

    fn parts(self) -> Vec<Reading> {
        match self {
            Plain(of) => vec![of],
            Ratio(first, second) | Beyond(first, second) => vec![first, second],
        }
    }

    fn probes(self) -> impl Iterator<Item = Probe> {
        self.parts().into_iter().map(|Reading(probe, _)| probe)
    }

    /// The probes whose figures stolen time would falsify.
    pub(super) fn timed_probes(self) -> impl Iterator<Item = Probe> {
        let timed = self
            .parts()
            .into_iter()
            .filter(|Reading(_, read)| read.is_timed());
        timed.map(|Reading(probe, _)| probe)
    }
}

/// The probes that a family needs, each once.
pub(super) fn probes(family: &[Goal]) -> Vec<Probe> {
    let mut probes = Vec::new();
    for probe in family.iter().flat_map(|goal| goal.figure.probes()) {
        if !probes.contains(&probe) {
            probes.push(probe);
        }
    }
    probes
}

/// The selected goals, in their families.
pub(super) fn chosen(only: &[String]) -> Result<Vec<Vec<Goal>>, Error> {
    let is_known = |word: &&String| {
        let mut goals = FAMILIES.iter().copied().flatten();
        goals.any(|goal| has_name(goal.name, word))
    };
    if let Some(word) = only.iter().find(|word| !is_known(word)) {
        let message = format!("there is no goal `{word}`; see --list");
        return Err(Error::Program(message));
    }
    let is_wanted =
        |goal: &&Goal| only.is_empty() || only.iter().any(|word| has_name(goal.name, word));
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
