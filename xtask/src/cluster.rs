//! The cluster campaign: a testkit program runs three nodes over a replicated PostgreSQL, injects ten kinds of
//! faults, and then checks every intent.

use crate::TaskResult;
use crate::campaign::{Campaign, Planted};
use crate::context::Context;
use crate::packages::{self, POSTGRESQL};

pub(crate) const HELP: &str = "
Usage: cargo xtask cluster [--rounds N] [--minutes M] [--seed S] [--fault NAME]... [--resume | --resume-dirty]
       cargo xtask cluster --plants

Builds the server and the cluster campaign, then starts three nodes over a PostgreSQL and its synchronous standby,
injects N faults (22 by default), repairs each, and checks for lost, duplicated or resurrected work. The
faults take turns: kill-node, kill-postmaster, promote, stop-node, cut, full-disk, upgrade, node-clock, promote-clock,
outsiders. docs/reliability.md says what each of them proves. Results are appended to target/cluster/results.jsonl.

  --rounds N    rounds in all; each has one fault, and ends with all nodes at work again
  --minutes M   stop after this time, 30 at most; --resume continues
  --seed S      repeat the plan of a campaign
  --fault NAME  only this fault; may be repeated
  --resume      continue the campaign of --seed, or with the last one, of this revision; refused if files differ
                from it
  --resume-dirty
                the same, although files differ
  --plants      plant each defect that the campaign must find, and demand that it does
";

pub(crate) const CLUSTER: Campaign = Campaign {
    name: "cluster",
    // Two for each fault, and four for the outsiders.
    rounds: 22,
    plants: &[
        planted("answer-before-commit", "kill-postmaster", 6),
        planted("skip-token-check", "kill-node", 6),
        // Once-keys are counted at the end of a series of rounds.
        planted("once-without-index", "kill-node", 1),
        planted("async-standby", "promote", 6),
    ],
};

/// A planted campaign ends at its first finding, mostly in the first round.
const fn planted(name: &'static str, fault: &'static str, rounds: u64) -> Planted {
    Planted {
        name,
        fault,
        rounds,
    }
}

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    packages::install(context, &POSTGRESQL)?;
    CLUSTER.command(context, words)
}

pub(crate) fn stage(context: &Context) -> TaskResult {
    packages::install(context, &POSTGRESQL)?;
    CLUSTER.stage(context)
}
