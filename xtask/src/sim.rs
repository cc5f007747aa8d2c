//! The simulation: a testkit program runs the real engine over a simulated disk, clock and network, seed by seed.
//!
//! The simulation must also find planted defects; otherwise its success proves nothing.

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, ChildExit, Output};
use crate::product;
use crate::revision::revision;

pub(crate) const HELP: &str = "
Usage: cargo xtask sim [--seed N] [--seeds K] [--steps M] [--minutes M] [--only PART] [--resume | --resume-dirty]
       cargo xtask sim --plants

Builds the simulation and runs K seeds (200 by default, 1 with --seed) of M steps each (200 by default), after the
seeds in crates/testkit/sim-seeds.txt. Results are appended to target/sim/results.jsonl.

  --seed N     begin with this seed; a failure prints the one to repeat
  --minutes M  stop after that many minutes (30 at most)
  --only PART  only the Intent Protocol (intent), Beam (beam) or the mesh (mesh)
  --resume     continue after the last seed that the results of this revision know; refused if files differ from it
  --resume-dirty
               the same, although files differ
  --plants     enable each planted defect instead and require that it is found
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
    "result-before-commit",
    "relay-before-commit",
    "recovery-fails-delivered",
    "late-result-replaces",
    "sent-is-done",
    "pushed-is-delivered",
];

/// The exit code of a simulation that found a broken promise.
const PROMISE_BROKEN: i32 = 1;

const VALUES: &[&str] = &["--seed", "--seeds", "--steps", "--minutes"];

const FLAGS: &[Flag] = &[
    Flag::valued("--seed"),
    Flag::valued("--seeds"),
    Flag::valued("--steps"),
    Flag::valued("--minutes"),
    Flag::valued("--only"),
    Flag::switch("--resume"),
    Flag::switch("--resume-dirty"),
    Flag::switch("--plants"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
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
    for part in flags.values("--only") {
        args.extend(["--only".to_owned(), part.to_owned()]);
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
pub(crate) fn stage(context: &Context) -> TaskResult {
    prepare(context)?;
    simulate(context, &["--seeds".to_owned(), SEEDS.to_owned()])?;
    plants(context)
}

fn prepare(context: &Context) -> TaskResult {
    product::require_program(context, "sim")?;
    product::build(context)
}

fn simulate(context: &Context, args: &[String]) -> TaskResult {
    let mut command = context.program(context.binary("sim"), &["--known", KNOWN]);
    command.args(args);
    let output = Output::Copied(&context.log("sim"));
    process::run(command, output, context.deadline)?.require_success("the simulation")
}

fn plants(context: &Context) -> TaskResult {
    for plant in PLANTS {
        let mut command = context.program(context.binary("sim"), &["--seeds", SEEDS]);
        command.env("CONSIGN_PLANT", plant);
        // A log of its own: its failures are expected.
        let log = context.log(&format!("sim-planted-{plant}"));
        let ended = process::run(command, Output::Logged(&log), context.deadline)?;
        judge_plant(plant, ended)?;
    }
    Ok(())
}

fn judge_plant(plant: &str, ended: ChildExit) -> TaskResult {
    match ended {
        ChildExit::Status(Some(PROMISE_BROKEN)) => {
            println!("plant {plant}: found, as required");
            Ok(())
        }
        ChildExit::Status(Some(0)) => Err(format!(
            "plant {plant} survived: the simulation did not notice it in {SEEDS} seeds"
        )),
        ChildExit::Status(_) | ChildExit::TimedOut => {
            ended.require_success(&format!("the simulation with plant {plant}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_promise_satisfies_a_planted_run() {
        assert!(judge_plant("p", ChildExit::Status(Some(1))).is_ok());
        let survived = judge_plant("p", ChildExit::Status(Some(0))).unwrap_err();
        assert!(survived.contains("survived"), "{survived}");
        for ended in [
            ChildExit::Status(Some(2)),
            ChildExit::Status(None),
            ChildExit::TimedOut,
        ] {
            assert!(judge_plant("p", ended).is_err(), "{ended:?}");
        }
    }
}
