//! The crash campaign: a testkit program kills the server again and again and then accounts for every intent.
//!
//! Two defects are planted as well. A campaign that does not notice them is no evidence, so they must be found.

use crate::Done;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Ended, Output};
use crate::product;

pub(crate) const HELP: &str = "
Usage: cargo xtask crash [--rounds N] [--seed S]

Builds the server and the crash campaign, then kills and restarts the server N times (30 by default)
and looks for lost, doubled or resurrected work. The seed, printed by the campaign, repeats a run.
";

/// Rounds of the full campaign, and of each planted one.
const ROUNDS: u64 = 30;
const ROUNDS_PLANTED: u64 = 5;

/// Defects the campaign must find.
const PLANTS: &[&str] = &["answer-before-commit", "skip-token-check"];

/// What the campaign answers when it found a violation.
const VIOLATION_FOUND: i32 = 1;

const FLAGS: &[Flag] = &[
    Flag {
        name: "--rounds",
        takes_value: true,
    },
    Flag {
        name: "--seed",
        takes_value: true,
    },
];

pub(crate) fn command(context: &Context, words: &[String]) -> Done {
    let flags = Flags::parse(words, FLAGS)?;
    let rounds = flags.number("--rounds")?.unwrap_or(ROUNDS).to_string();
    let seed = flags.number("--seed")?.map(|seed| seed.to_string());
    prepare(context)?;
    let mut args = vec!["--rounds", &rounds];
    if let Some(seed) = &seed {
        args.extend(["--seed", seed]);
    }
    campaign(context, &args, Output::Copied(&context.log("crash")))?
        .demand_success("the crash campaign")
}

/// The stage of `cargo xtask test`: one clean campaign, then each plant.
pub(crate) fn stage(context: &Context) -> Done {
    prepare(context)?;
    campaign(
        context,
        &["--rounds", &ROUNDS.to_string()],
        Output::Copied(&context.log("crash")),
    )?
    .demand_success("the crash campaign")?;
    for plant in PLANTS {
        let rounds = ROUNDS_PLANTED.to_string();
        let args = ["--plant", plant, "--rounds", &rounds];
        // A log of its own: its failures are wanted, and must not count as results.
        let ended = campaign(
            context,
            &args,
            Output::Logged(&context.log(&format!("crash-planted-{plant}"))),
        )?;
        judge_plant(plant, ended)?;
    }
    Ok(())
}

fn prepare(context: &Context) -> Done {
    product::demand_program(context, "crash")?;
    product::build(context)
}

fn campaign(context: &Context, args: &[&str], output: Output<'_>) -> Result<Ended, String> {
    let consign = product::consign(context);
    let mut command = context.program(context.binary("crash"), &["--consign", &consign]);
    command.args(args);
    process::run(command, output, context.deadline)
}

fn judge_plant(plant: &str, ended: Ended) -> Done {
    match ended {
        Ended::Exit(Some(VIOLATION_FOUND)) => {
            println!("plant {plant}: found, as it must be");
            Ok(())
        }
        Ended::Exit(Some(0)) => Err(format!(
            "plant {plant} survived: the crash campaign did not notice it"
        )),
        Ended::Exit(_) | Ended::OutOfTime => ended
            .demand_success(&format!("the crash campaign with plant {plant}"))
            .map_err(|error| {
                format!("{error}; only exit code {VIOLATION_FOUND} means that the plant was found")
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_found_violation_satisfies_a_planted_run() {
        assert!(judge_plant("p", Ended::Exit(Some(1))).is_ok());
        assert!(
            judge_plant("p", Ended::Exit(Some(0)))
                .unwrap_err()
                .contains("survived")
        );
        for ended in [Ended::Exit(Some(2)), Ended::Exit(None), Ended::OutOfTime] {
            assert!(judge_plant("p", ended).is_err(), "{ended:?}");
        }
    }
}
