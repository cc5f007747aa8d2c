//! The crash matrix of the mesh in a loop: tests in which a daemon or a broker kills itself at one step of a send after the
//! other, round after round, each with later steps than the one before.
//!
//! Planted losses must make the tests fail; otherwise their success proves nothing.

use std::time::{Duration, Instant};

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, ChildExit, Output};
use crate::tools::{Runner, Selection, TestLedger};

pub(crate) const HELP: &str = "
Usage: cargo xtask mesh-crash [--rounds N] [--minutes M] [--first R]
       cargo xtask mesh-crash --plants

Kills the daemon and the broker of a mesh at each step of a send: before and after each write and sync of their
ledgers. Every round does so with later steps; each accepted message must arrive once. `cargo xtask test` runs
the first round in the stage tests.

  --rounds N   rounds in all (4 by default)
  --minutes M  begin no round after this time, 30 at most
  --first R    begin with this round, to repeat one that failed
  --plants     wake each planted loss, and demand that the tests find it
";

/// Part of the name of each test, and of none else.
const TESTS: &str = "mesh_crash::";
/// Read by the tests.
const ROUND: &str = "CONSIGN_MESH_CRASH_ROUND";
const ROUNDS: u64 = 4;
const MINUTES_MAX: u64 = 30;
/// Losses that the matrix must find.
const PLANTS: &[&str] = &["answer-before-commit"];
/// The exit codes of the runners if a test failed.
const TEST_FAILED: [i32; 2] = [100, 101];

const FLAGS: &[Flag] = &[
    Flag::valued("--rounds"),
    Flag::valued("--minutes"),
    Flag::valued("--first"),
    Flag::switch("--plants"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    let build = Runner::find(context).build_command(context);
    process::run(build, Output::Stderr, context.deadline)?.require_success("building the tests")?;
    if flags.has("--plants") {
        return plants(context);
    }
    let first = flags.number("--first")?.unwrap_or(0);
    let minutes = flags
        .number("--minutes")?
        .map(|minutes| minutes.min(MINUTES_MAX));
    let rounds = match (flags.number("--rounds")?, minutes) {
        (Some(rounds), _) => rounds,
        (None, Some(_)) => u64::MAX,
        (None, None) => ROUNDS,
    };
    let limit = Duration::from_secs(60 * minutes.unwrap_or(MINUTES_MAX));
    let began = Instant::now();
    let mut done = 0;
    while done < rounds && began.elapsed() < limit {
        let round = first + done;
        run(context, round, None)?
            .require_success(&format!("round {round} of the crash matrix of the mesh"))
            .map_err(|error| format!("{error}; repeat it with: --first {round} --rounds 1"))?;
        done += 1;
        println!(
            "round {round}: passed, {} s in all",
            began.elapsed().as_secs()
        );
    }
    println!("{done} rounds passed in {} s", began.elapsed().as_secs());
    Ok(())
}

fn run(context: &Context, round: u64, plant: Option<&str>) -> Result<ChildExit, String> {
    let runner = Runner::find(context);
    let mut command = runner.command(context, Selection::Named(TESTS), TestLedger::Sqlite);
    command.env(ROUND, round.to_string());
    let Some(plant) = plant else {
        let log = context.log("mesh-crash");
        return process::run(command, Output::Copied(&log), context.deadline);
    };
    command.env("CONSIGN_PLANT", plant);
    // A log of its own: its failures are expected.
    let log = context.log(&format!("mesh-crash-planted-{plant}"));
    process::run(command, Output::Logged(&log), context.deadline)
}

fn plants(context: &Context) -> TaskResult {
    for plant in PLANTS {
        judge_plant(plant, run(context, 0, Some(plant))?)?;
    }
    Ok(())
}

fn judge_plant(plant: &str, ended: ChildExit) -> TaskResult {
    match ended {
        ChildExit::Status(Some(code)) if TEST_FAILED.contains(&code) => {
            println!("plant {plant}: found, as required");
            Ok(())
        }
        ChildExit::Status(Some(0)) => Err(format!(
            "plant {plant} survived: no test of the matrix noticed it"
        )),
        ChildExit::Status(_) | ChildExit::TimedOut => {
            ended.require_success(&format!("the crash matrix of the mesh with plant {plant}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_test_satisfies_a_planted_run_of_the_matrix() {
        assert!(judge_plant("p", ChildExit::Status(Some(100))).is_ok());
        for ended in [
            ChildExit::Status(Some(0)),
            ChildExit::Status(Some(4)),
            ChildExit::Status(None),
            ChildExit::TimedOut,
        ] {
            assert!(judge_plant("p", ended).is_err(), "{ended:?}");
        }
    }
}
