//! The simulation: a testkit program runs the real engine over a simulated disk, clock and network, seed by seed.
//!
//! A simulation that would not notice a defect is no evidence, so planted ones must be found.

use crate::Done;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Ended, Output};
use crate::product;
use crate::revision::revision;

pub(crate) const HELP: &str = "
Usage: cargo xtask sim [--seed N] [--seeds K] [--steps M] [--minutes M] [--resume | --resume-dirty] [--plants]

Builds the simulation and runs K seeds (200 by default, 1 with --seed) of M steps each (200 by default), after the
seeds in crates/testkit/sim-seeds.txt. Results are appended to target/sim/results.jsonl.

  --seed N     begin with this seed; a failure prints the one to repeat
  --minutes M  stop after that many minutes (30 at most)
  --resume     go on after the last seed that the results of this revision know; refused if files differ from it
  --resume-dirty
               the same, although files differ
  --plants     wake each planted defect instead and demand that it is found
";

/// Seeds of the stage, within which each plant must be found too.
const SEEDS: &str = "200";
const KNOWN: &str = "crates/testkit/sim-seeds.txt";

/// Defects the simulation must find.
pub(crate) const PLANTS: &[&str] = &[
    "answer-before-commit",
    "skip-token-check",
    "lost-wake",
    "sweep-live-lease",
    "wall-clock-time",
    "torn-batch",
    "stale-receipt",
];

/// What the simulation answers when a promise was broken.
const PROMISE_BROKEN: i32 = 1;

const VALUES: &[&str] = &["--seed", "--seeds", "--steps", "--minutes"];

const FLAGS: &[Flag] = &[
    Flag::valued("--seed"),
    Flag::valued("--seeds"),
    Flag::valued("--steps"),
    Flag::valued("--minutes"),
    Flag::switch("--resume"),
    Flag::switch("--resume-dirty"),
    Flag::switch("--plants"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> Done {
    let flags = Flags::parse(words, FLAGS)?;
    prepare(context)?;
    if flags.has("--plants") {
        return plants(context);
    }
    let results = context.target.join("sim/results.jsonl");
    let mut args = vec![
        "--results".to_owned(),
        results.to_string_lossy().into_owned(),
        "--revision".to_owned(),
        revision(context),
    ];
    for name in VALUES {
        if let Some(number) = flags.number(name)? {
            args.extend([(*name).to_owned(), number.to_string()]);
        }
    }
    if !flags.has("--seed") && !flags.has("--seeds") {
        args.extend(["--seeds".to_owned(), SEEDS.to_owned()]);
    }
    for name in ["--resume", "--resume-dirty"] {
        if flags.has(name) {
            args.push(name.to_owned());
        }
    }
    simulate(context, &args)
}

/// The stage of `cargo xtask test`: known and fixed seeds, then each plant. It leaves the results of campaigns alone.
pub(crate) fn stage(context: &Context) -> Done {
    prepare(context)?;
    simulate(context, &["--seeds".to_owned(), SEEDS.to_owned()])?;
    plants(context)
}

fn prepare(context: &Context) -> Done {
    product::demand_program(context, "sim")?;
    product::build(context)
}

fn simulate(context: &Context, args: &[String]) -> Done {
    let mut command = context.program(context.binary("sim"), &["--known", KNOWN]);
    command.args(args);
    let output = Output::Copied(&context.log("sim"));
    process::run(command, output, context.deadline)?.demand_success("the simulation")
}

fn plants(context: &Context) -> Done {
    for plant in PLANTS {
        let mut command = context.program(context.binary("sim"), &["--seeds", SEEDS]);
        command.env("CONSIGN_PLANT", plant);
        // A log of its own: its failures are wanted.
        let log = context.log(&format!("sim-planted-{plant}"));
        let ended = process::run(command, Output::Logged(&log), context.deadline)?;
        judge_plant(plant, ended)?;
    }
    Ok(())
}

fn judge_plant(plant: &str, ended: Ended) -> Done {
    match ended {
        Ended::Exit(Some(PROMISE_BROKEN)) => {
            println!("plant {plant}: found, as it must be");
            Ok(())
        }
        Ended::Exit(Some(0)) => Err(format!(
            "plant {plant} survived: the simulation did not notice it in {SEEDS} seeds"
        )),
        Ended::Exit(_) | Ended::OutOfTime => {
            ended.demand_success(&format!("the simulation with plant {plant}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_promise_satisfies_a_planted_run() {
        assert!(judge_plant("p", Ended::Exit(Some(1))).is_ok());
        let survived = judge_plant("p", Ended::Exit(Some(0))).unwrap_err();
        assert!(survived.contains("survived"), "{survived}");
        for ended in [Ended::Exit(Some(2)), Ended::Exit(None), Ended::OutOfTime] {
            assert!(judge_plant("p", ended).is_err(), "{ended:?}");
        }
    }
}
