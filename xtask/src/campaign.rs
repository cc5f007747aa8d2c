//! A campaign of the testkit: a program that makes servers fail and then checks every intent.
//!
//! A campaign must also find planted defects; otherwise its success proves nothing.

use std::path::Path;

use crate::TaskResult;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::process::{self, ChildExit, Output};
use crate::product;
use crate::revision::revision;

/// A campaign and the planted defects that it must find.
pub(crate) struct Campaign {
    /// Its program, its log and the folder of its results.
    pub(crate) name: &'static str,
    /// Rounds of the stage and of a plain call.
    pub(crate) rounds: u64,
    /// Defects that it must find, with the fault that shows them and the rounds it is given.
    pub(crate) plants: &'static [Planted],
}

pub(crate) struct Planted {
    pub(crate) name: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) rounds: u64,
}

/// The exit code of a campaign that found a violation.
const VIOLATION_FOUND: i32 = 1;

/// The exit code of a campaign that failed itself, or checked too little.
const NOT_CARRIED_OUT: i32 = 2;

/// How often a planted campaign is tried.
const PLANTED_TRIES: u32 = 3;

/// How much of the log of a failed run is shown.
const LOG_LINES: usize = 20;

const FLAGS: &[Flag] = &[
    Flag::valued("--rounds"),
    Flag::valued("--minutes"),
    Flag::valued("--seed"),
    Flag::valued("--fault"),
    Flag::switch("--resume"),
    Flag::switch("--resume-dirty"),
    Flag::switch("--plants"),
];

impl Campaign {
    pub(crate) fn command(&self, context: &Context, words: &[String]) -> TaskResult {
        let flags = Flags::parse(words, FLAGS)?;
        self.prepare(context)?;
        if flags.has("--plants") {
            return self.plants(context);
        }
        let results = context.target.join(self.name).join("results.jsonl");
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
            args.extend(["--rounds".to_owned(), self.rounds.to_string()]);
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
        self.run(context, &args, Output::Copied(&context.log(self.name)))?
            .require_success(&self.what())
    }

    /// The stage of `cargo xtask test`: one clean campaign with every fault, then each plant.
    pub(crate) fn stage(&self, context: &Context) -> TaskResult {
        self.prepare(context)?;
        let args = ["--rounds", &self.rounds.to_string()];
        self.run(context, &args, Output::Copied(&context.log(self.name)))?
            .require_success(&self.what())?;
        self.plants(context)
    }

    fn what(&self) -> String {
        format!("the {} campaign", self.name)
    }

    fn plants(&self, context: &Context) -> TaskResult {
        for plant in self.plants {
            let Planted { name, fault, .. } = plant;
            let rounds = plant.rounds.to_string();
            let args = ["--plant", name, "--fault", fault, "--rounds", &rounds];
            // A log of its own: its failures are expected and must not count as results.
            let log = context.log(&format!("{}-planted-{name}", self.name));
            let ended = self.run_planted(|| self.run(context, &args, Output::Logged(&log)))?;
            self.judge_plant(name, ended)
                .map_err(|error| with_log(&error, &log))?;
        }
        Ok(())
    }

    /// A defective server can break the preparations of a campaign before anything is checked. Such a run proves nothing, so
    /// it is repeated with other random numbers.
    fn run_planted(
        &self,
        mut run: impl FnMut() -> Result<ChildExit, String>,
    ) -> Result<ChildExit, String> {
        let mut ended = run()?;
        for _ in 1..PLANTED_TRIES {
            if !matches!(ended, ChildExit::Status(Some(NOT_CARRIED_OUT))) {
                break;
            }
            println!("{} could not be carried out, it is repeated", self.what());
            ended = run()?;
        }
        Ok(ended)
    }

    fn prepare(&self, context: &Context) -> TaskResult {
        product::require_program(context, self.name)?;
        product::build(context)
    }

    fn run(
        &self,
        context: &Context,
        args: &[&str],
        output: Output<'_>,
    ) -> Result<ChildExit, String> {
        let consign = product::consign(context);
        let mut command = context.program(context.binary(self.name), &["--consign", &consign]);
        command.args(args);
        process::run(command, output, context.deadline)
    }

    fn judge_plant(&self, plant: &str, ended: ChildExit) -> TaskResult {
        let what = self.what();
        match ended {
            ChildExit::Status(Some(VIOLATION_FOUND)) => {
                println!("plant {plant}: found, as required");
                Ok(())
            }
            ChildExit::Status(Some(0)) => {
                Err(format!("plant {plant} survived: {what} did not notice it"))
            }
            ChildExit::Status(_) | ChildExit::TimedOut => ended
                .require_success(&format!("{what} with plant {plant}"))
                .map_err(|error| {
                    format!(
                        "{error}; only exit code {VIOLATION_FOUND} means that the plant was found"
                    )
                }),
        }
    }
}

/// The error with the last lines of a log that the terminal does not show.
fn with_log(error: &str, log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    format!("{error}; {} ends with:\n{end}", log.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::CLUSTER, crash::CRASH};

    #[test]
    fn the_document_says_which_fault_finds_which_plant() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
        for campaign in [&CRASH, &CLUSTER] {
            for Planted { name, fault, .. } in campaign.plants {
                let campaign = campaign.name;
                let word = format!("`{campaign} {fault}`");
                let row = text
                    .lines()
                    .find(|line| line.starts_with(&format!("| `{name}` |")));
                assert!(row.is_some_and(|row| row.contains(&word)), "{name}: {word}");
            }
        }
    }

    /// A planted defect that no check must find proves nothing.
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
            let demanded = CRASH.plants.iter().any(|plant| plant.name == name)
                || crate::sim::PLANTS.contains(&name.as_str())
                || tests.contains(&format!("| {name} |"));
            assert!(demanded, "{name}");
        }
    }

    #[test]
    fn the_error_of_a_planted_run_shows_the_end_of_its_log() {
        let log = std::env::temp_dir().join(format!("consign-xtask-{}.log", std::process::id()));
        let lines: Vec<String> = (1..=30).map(|number| format!("line {number}")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        let error = with_log("it failed", &log);
        std::fs::remove_file(&log).unwrap();
        assert!(error.starts_with("it failed; "), "{error}");
        assert!(error.ends_with("\nline 29\nline 30"), "{error}");
        assert!(error.contains(" ends with:\nline 11\n"), "{error}");
    }

    #[test]
    fn a_planted_run_that_was_not_carried_out_is_repeated_a_few_times() {
        let tried = |codes: &[i32]| {
            let mut codes = codes.iter();
            let ended = CRASH.run_planted(|| Ok(ChildExit::Status(codes.next().copied())));
            (ended.unwrap(), codes.len())
        };
        assert_eq!(tried(&[1, 1]), (ChildExit::Status(Some(1)), 1));
        assert_eq!(tried(&[0, 1]), (ChildExit::Status(Some(0)), 1));
        assert_eq!(tried(&[2, 1, 1]), (ChildExit::Status(Some(1)), 1));
        assert_eq!(tried(&[2, 2, 2, 1]), (ChildExit::Status(Some(2)), 1));
    }

    #[test]
    fn only_a_found_violation_satisfies_a_planted_run() {
        assert!(CRASH.judge_plant("p", ChildExit::Status(Some(1))).is_ok());
        assert!(
            CRASH
                .judge_plant("p", ChildExit::Status(Some(0)))
                .unwrap_err()
                .contains("survived")
        );
        for ended in [
            ChildExit::Status(Some(2)),
            ChildExit::Status(None),
            ChildExit::TimedOut,
        ] {
            assert!(CRASH.judge_plant("p", ended).is_err(), "{ended:?}");
        }
    }
}
