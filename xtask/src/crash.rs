//! The crash campaign: a testkit program makes the server fail in six ways, again and again, and then accounts for
//! every intent.
//!
//! Defects are planted as well. A campaign that does not notice them is no evidence, so they must be found.

use crate::Done;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, Ended, Output};
use crate::product;
use crate::revision::revision;

pub(crate) const HELP: &str = "
Usage: cargo xtask crash [--rounds N] [--minutes M] [--seed S] [--fault NAME]... [--resume | --resume-dirty]
       cargo xtask crash --plants

Builds the server and the crash campaign, then lets the server fail N times (30 by default) and looks for lost,
doubled or resurrected work. The faults take turns: kill, failpoint, power, full, eio, stop.
docs/reliability.md says what each of them proves. Results are appended to target/crash/results.jsonl.

  --rounds N    rounds in all; each ends with a dead server
  --minutes M   stop after this time, 30 at most; --resume goes on
  --seed S      repeat the plan of a campaign
  --fault NAME  only this fault; may be repeated
  --resume      go on with the campaign of --seed, or with the last one, of this revision; refused if files differ
                from it
  --resume-dirty
                the same, although files differ
  --plants      wake each planted defect that a campaign must find, and demand that it does
";

/// Rounds of the stage: five for each fault.
const ROUNDS: u64 = 30;
/// A planted campaign ends at its first finding, mostly in the first round.
const ROUNDS_PLANTED: &str = "12";

/// Defects that a campaign must find, with the fault that shows them.
const PLANTS: &[(&str, &str)] = &[
    ("answer-before-commit", "kill"),
    ("skip-token-check", "kill"),
    ("dedupe-by-look", "kill"),
    ("once-apart", "failpoint"),
    ("normal-sync", "power"),
];

/// What the campaign answers when it found a violation.
const VIOLATION_FOUND: i32 = 1;

const FLAGS: &[Flag] = &[
    Flag {
        name: "--rounds",
        takes_value: true,
    },
    Flag {
        name: "--minutes",
        takes_value: true,
    },
    Flag {
        name: "--seed",
        takes_value: true,
    },
    Flag {
        name: "--fault",
        takes_value: true,
    },
    Flag {
        name: "--resume",
        takes_value: false,
    },
    Flag {
        name: "--resume-dirty",
        takes_value: false,
    },
    Flag {
        name: "--plants",
        takes_value: false,
    },
];

pub(crate) fn command(context: &Context, words: &[String]) -> Done {
    let flags = Flags::parse(words, FLAGS)?;
    prepare(context)?;
    if flags.has("--plants") {
        return plants(context);
    }
    let results = context.target.join("crash").join("results.jsonl");
    let mut args = vec![
        "--results".to_owned(),
        results.to_string_lossy().into_owned(),
        "--revision".to_owned(),
        revision(context),
    ];
    for name in ["--rounds", "--minutes", "--seed"] {
        if let Some(number) = flags.number(name)? {
            args.extend([name.to_owned(), number.to_string()]);
        }
    }
    if !flags.has("--rounds") && !flags.has("--minutes") {
        args.extend(["--rounds".to_owned(), ROUNDS.to_string()]);
    }
    for fault in flags.values("--fault") {
        args.extend(["--fault".to_owned(), fault.to_owned()]);
    }
    for name in ["--resume", "--resume-dirty"] {
        if flags.has(name) {
            args.push(name.to_owned());
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    campaign(context, &args, Output::Copied(&context.log("crash")))?
        .demand_success("the crash campaign")
}

/// The stage of `cargo xtask test`: one clean campaign with every fault, then each plant.
pub(crate) fn stage(context: &Context) -> Done {
    prepare(context)?;
    campaign(
        context,
        &["--rounds", &ROUNDS.to_string()],
        Output::Copied(&context.log("crash")),
    )?
    .demand_success("the crash campaign")?;
    plants(context)
}

fn plants(context: &Context) -> Done {
    for (plant, fault) in PLANTS {
        let args = [
            "--plant",
            plant,
            "--fault",
            fault,
            "--rounds",
            ROUNDS_PLANTED,
        ];
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
    fn the_document_says_which_fault_finds_which_plant() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
        for (plant, fault) in PLANTS {
            let row = format!("| `{plant}` | campaign `{fault}` |");
            assert!(text.contains(&row), "{row}");
        }
    }

    /// A planted defect that nothing looks for proves nothing.
    #[test]
    fn every_plant_is_demanded_from_a_campaign_a_simulation_or_a_test() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let (kernel, tests) = (
            read("crates/kernel/src/plant.rs"),
            read("docs/conformance/mutations.md"),
        );
        let named = |line: &str| {
            let (_, name) = line.trim().split_once(" => \"")?;
            Some(name.strip_suffix("\",")?.to_owned())
        };
        let names: Vec<String> = kernel.lines().filter_map(named).collect();
        assert!(names.len() >= 19, "{names:?}");
        for name in names {
            let demanded = PLANTS.iter().any(|(plant, _)| *plant == name)
                || crate::sim::PLANTS.contains(&name.as_str())
                || tests.contains(&format!("| {name} |"));
            assert!(demanded, "{name}");
        }
    }

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
