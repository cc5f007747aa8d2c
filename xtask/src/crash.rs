//! The crash campaign: a testkit program makes the server fail in six ways, many times, and then checks every intent.

use crate::TaskResult;
use crate::campaign::{Campaign, Planted};
use crate::context::Context;

pub(crate) const HELP: &str = "
Usage: cargo xtask crash [--rounds N] [--minutes M] [--seed S] [--fault NAME]... [--resume | --resume-dirty]
       cargo xtask crash --plants

Builds the server and the crash campaign, then makes the server fail N times (30 by default) and checks for
lost, duplicated or resurrected work. The faults take turns: kill, failpoint, power, full, eio, stop.
docs/reliability.md says what each of them proves. Results are appended to target/crash/results.jsonl.

  --rounds N    rounds in all; each ends with a dead server
  --minutes M   stop after this time, 30 at most; --resume continues
  --seed S      repeat the plan of a campaign
  --fault NAME  only this fault; may be repeated
  --resume      continue the campaign of --seed, or with the last one, of this revision; refused if files differ
                from it
  --resume-dirty
                the same, although files differ
  --plants      wake each planted defect that a campaign must find, and demand that it does
";

pub(crate) const CRASH: Campaign = Campaign {
    name: "crash",
    // Five for each fault.
    rounds: 30,
    plants: &[
        planted("answer-before-commit", "kill"),
        planted("skip-token-check", "kill"),
        Planted {
            // The keys are compared at the end of a trial.
            rounds: 6,
            ..planted("dedupe-by-look", "kill")
        },
        Planted {
            // Few of the failpoints are between the two commits.
            rounds: 24,
            ..planted("once-apart", "failpoint")
        },
        planted("normal-sync", "power"),
        planted("result-before-commit", "kill"),
        Planted {
            // The moment between the two is short.
            rounds: 24,
            ..planted("relay-before-commit", "kill")
        },
        planted("recovery-fails-delivered", "kill"),
        Planted {
            // The events are read at the end of a trial, and a restart may find no message that waits.
            rounds: 6,
            ..planted("recovery-requeues-delivered", "kill")
        },
    ],
};

/// A planted campaign ends at its first finding, mostly in the first round.
const fn planted(name: &'static str, fault: &'static str) -> Planted {
    Planted {
        name,
        fault,
        rounds: 12,
    }
}

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    CRASH.command(context, words)
}

pub(crate) fn stage(context: &Context) -> TaskResult {
    CRASH.stage(context)
}
