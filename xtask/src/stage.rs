//! `cargo xtask test`: runs the stages in order, each group within its time budget, and prints a summary.
//!
//! A stage that fails does not stop the others: one run reports all failures.
//! A stage that exceeds the budget of its group is stopped.

use std::fs;
use std::time::{Duration, Instant};

use crate::TaskResult;
use crate::conformance;
use crate::context::Context;
use crate::flags::{Flag, Flags};
use crate::outcome::Outcomes;
use crate::report;
use crate::stages::STAGES;

pub(crate) const HELP: &str = "
Usage: cargo xtask test [--only STAGE]... [--skip STAGE]... [--fail-flaky] [--list]

Runs every check of the repository, in order, and ends with a table of times, a table of the tests that passed only
when they were retried (flaky tests), the test runner's closing line, and the sum of all test results.
Fails if a stage fails or if a group of stages exceeds its time budget.

  --only STAGE  run this stage only; may be repeated
  --skip STAGE  leave this stage out; may be repeated
  --fail-flaky  fail if a test is flaky, too
  --list        list the stages and their budgets
";

/// One step of the run.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// One of `GROUPS`.
    pub(crate) group: &'static str,
    /// The log with its results, removed before the stage starts so that an old one is not read as new.
    pub(crate) log: Option<&'static str>,
    pub(crate) run: fn(&Context) -> TaskResult,
}

pub(crate) const BUILD: &str = "build and clippy";
pub(crate) const TESTS: &str = "tests";
pub(crate) const CLIENTS: &str = "real clients";
pub(crate) const CRASH: &str = "crash and simulation";
pub(crate) const BROWSER: &str = "browser";

/// Groups and the time budget of each, in minutes.
const GROUPS: &[(&str, u64)] = &[
    (BUILD, 34),
    (TESTS, 24),
    (CLIENTS, 5),
    (CRASH, 8),
    (BROWSER, 4),
];

const FLAGS: &[Flag] = &[
    Flag::valued("--only"),
    Flag::valued("--skip"),
    Flag::switch("--fail-flaky"),
    Flag::switch("--list"),
];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    if flags.has("--list") {
        print!("{}", listing());
        return Ok(());
    }
    let chosen = chosen(&flags.values("--only"), &flags.values("--skip"))?;
    remove_old_logs(context, &flags, &chosen);
    let mut timings = Timings::default();
    for stage in &chosen {
        run_one(context, stage, &mut timings);
    }
    print_summary(context, &chosen, &timings, flags.has("--fail-flaky"))
}

fn listing() -> String {
    let row = |stage: &Stage| {
        let budget = format!(
            "{} ({} min)",
            stage.group,
            budget_of(stage.group).as_secs() / 60
        );
        vec![stage.name.to_owned(), budget, stage.about.to_owned()]
    };
    report::table(&STAGES.iter().map(row).collect::<Vec<_>>())
}

fn chosen(only: &[&str], skip: &[&str]) -> Result<Vec<&'static Stage>, String> {
    for name in only.iter().chain(skip) {
        if !STAGES.iter().any(|stage| stage.name == *name) {
            let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
            return Err(format!(
                "there is no stage `{name}`; there are: {}",
                names.join(", ")
            ));
        }
    }
    let wanted = |stage: &&Stage| {
        (only.is_empty() || only.contains(&stage.name)) && !skip.contains(&stage.name)
    };
    Ok(STAGES.iter().filter(wanted).collect())
}

/// Removes old results: all of them before a whole run, otherwise those of the stages that are about to run.
fn remove_old_logs(context: &Context, flags: &Flags, chosen: &[&Stage]) {
    let stages: Vec<&Stage> = if flags.has("--only") {
        chosen.to_vec()
    } else {
        STAGES.iter().collect()
    };
    for log in stages.iter().filter_map(|stage| stage.log) {
        // Usually there is none.
        let _ = fs::remove_file(context.log(log));
    }
}

/// The stages that have run.
#[derive(Default)]
struct Timings {
    entries: Vec<Timing>,
}

struct Timing {
    stage: &'static str,
    group: &'static str,
    took: Duration,
    result: TaskResult,
}

impl Timings {
    fn group(&self, group: &str) -> Duration {
        let mine = self.entries.iter().filter(|entry| entry.group == group);
        mine.map(|entry| entry.took).sum()
    }

    fn failures(&self) -> Vec<String> {
        let stages = self.entries.iter().filter_map(|entry| {
            let error = entry.result.as_ref().err()?;
            Some(format!("stage {}: {error}", entry.stage))
        });
        let groups = GROUPS.iter().filter_map(|(group, _)| {
            let (took, budget) = (self.group(group), budget_of(group));
            let (took_s, budget_s) = (took.as_secs(), budget.as_secs());
            (took > budget)
                .then(|| format!("group {group}: {took_s} s, over its budget of {budget_s} s"))
        });
        stages.chain(groups).collect()
    }

    fn table(&self) -> String {
        let mut rows = vec![
            ["stage", "result", "seconds", "budget"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for entry in &self.entries {
            let result = if entry.result.is_ok() { "ok" } else { "FAILED" };
            let seconds = format!("{:.1}", entry.took.as_secs_f64());
            rows.push(vec![
                entry.stage.to_owned(),
                result.to_owned(),
                seconds,
                entry.group.to_owned(),
            ]);
        }
        for (group, _) in GROUPS {
            if self.entries.iter().any(|entry| entry.group == *group) {
                let (took, budget) = (self.group(group), budget_of(group));
                let result = if took > budget {
                    "OVER BUDGET"
                } else {
                    "within budget"
                };
                let seconds = format!("{:.1}", took.as_secs_f64());
                rows.push(vec![
                    format!("= {group}"),
                    result.to_owned(),
                    seconds,
                    budget.as_secs().to_string(),
                ]);
            }
        }
        report::table(&rows)
    }
}

fn budget_of(group: &str) -> Duration {
    let minutes = GROUPS
        .iter()
        .find(|(name, _)| *name == group)
        .map_or(0, |(_, minutes)| *minutes);
    Duration::from_secs(minutes * 60)
}

fn run_one(context: &Context, stage: &'static Stage, timings: &mut Timings) {
    println!("\n=== {}: {} ===", stage.name, stage.about);
    let left = budget_of(stage.group).saturating_sub(timings.group(stage.group));
    let started = Instant::now();
    let context = Context {
        deadline: Some(started + left),
        ..context.clone()
    };
    let result = (stage.run)(&context);
    let took = started.elapsed();
    match &result {
        Ok(()) => println!("--- {}: ok in {:.1} s", stage.name, took.as_secs_f64()),
        Err(error) => println!(
            "--- {}: FAILED in {:.1} s: {error}",
            stage.name,
            took.as_secs_f64()
        ),
    }
    timings.entries.push(Timing {
        stage: stage.name,
        group: stage.group,
        took,
        result,
    });
}

/// Prints the end of a run: the tables, the failures, the test runner's closing line, the sum.
fn print_summary(
    context: &Context,
    chosen: &[&Stage],
    timings: &Timings,
    fail_flaky: bool,
) -> TaskResult {
    // Only the logs of this run: those of stages left out by `--only` are older.
    let logs = chosen.iter().filter_map(|stage| {
        let log = fs::read_to_string(context.log(stage.log?)).ok()?;
        Some((stage.name, Outcomes::read(&log)))
    });
    let outcomes: Vec<(&str, Outcomes)> = logs.collect();
    let flaky = flaky_rows(&outcomes);
    let mut failures = timings.failures();
    if fail_flaky && !flaky.is_empty() {
        let count = flaky.len();
        failures.push(format!("flaky tests: {count} passed only when retried"));
    }
    println!("\n{}", timings.table());
    if !flaky.is_empty() {
        println!("{}", flaky_table(flaky));
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    for closing in outcomes
        .iter()
        .filter_map(|(_, outcomes)| outcomes.closing())
    {
        println!("{closing}");
    }
    let sum = sum(outcomes.iter().map(|(_, outcomes)| outcomes));
    if failures.is_empty() {
        println!("{sum}");
        return Ok(());
    }
    println!("{} of the checks above failed", failures.len());
    println!("{sum}");
    Err(String::new())
}

/// One row for each flaky test: the stage, and the test with its binary.
fn flaky_rows(outcomes: &[(&str, Outcomes)]) -> Vec<Vec<String>> {
    let rows = outcomes.iter().flat_map(|(stage, outcomes)| {
        let tests = outcomes.flaky();
        tests.map(|test| vec![(*stage).to_owned(), test])
    });
    rows.collect()
}

fn flaky_table(rows: Vec<Vec<String>>) -> String {
    let header = ["stage", "FLAKY: passed only when retried"].map(str::to_owned);
    let rows: Vec<Vec<String>> = [header.to_vec()].into_iter().chain(rows).collect();
    report::table(&rows)
}

fn sum<'a>(outcomes: impl Iterator<Item = &'a Outcomes>) -> String {
    let (mut passed, mut failed) = (0, 0);
    for outcomes in outcomes {
        passed += outcomes.passed();
        failed += outcomes.failed();
    }
    format!("{passed} passed, {failed} failed")
}

/// The stage that compares the results of the others with the checklists.
pub(crate) fn conformance(context: &Context) -> TaskResult {
    conformance::run(context, None, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::RESULT_LOGS;

    fn timing(group: &'static str, seconds: u64, result: TaskResult) -> Timing {
        Timing {
            stage: "some",
            group,
            took: Duration::from_secs(seconds),
            result,
        }
    }

    #[test]
    fn every_stage_has_a_budget_and_every_log_is_evidence() {
        for stage in STAGES {
            assert!(budget_of(stage.group) > Duration::ZERO, "{}", stage.name);
            assert!(
                stage.log.is_none_or(|log| RESULT_LOGS.contains(&log)),
                "{}",
                stage.name
            );
        }
        for log in RESULT_LOGS {
            assert!(STAGES.iter().any(|stage| stage.log == Some(log)), "{log}");
        }
    }

    #[test]
    fn stages_are_chosen_in_their_own_order() {
        let names = |only: &[&str], skip: &[&str]| -> Vec<&str> {
            chosen(only, skip)
                .unwrap()
                .iter()
                .map(|stage| stage.name)
                .collect()
        };
        assert_eq!(names(&["tidy", "fmt"], &[]), ["fmt", "tidy"]);
        assert_eq!(names(&[], &["fmt"]).len(), STAGES.len() - 1);
        assert!(chosen(&["fmr"], &[]).is_err());
    }

    #[test]
    fn a_group_over_budget_fails_even_if_its_stages_did_not() {
        let mut timings = Timings::default();
        timings.entries.push(timing(BROWSER, 200, Ok(())));
        assert!(timings.failures().is_empty());
        timings.entries.push(timing(BROWSER, 100, Ok(())));
        assert!(timings.failures()[0].contains("over its budget of 240 s"));
        assert!(timings.table().contains("OVER BUDGET"));
    }

    #[test]
    fn a_failed_stage_is_named_with_its_reason() {
        let mut timings = Timings::default();
        timings
            .entries
            .push(timing(TESTS, 1, Err("no luck".to_owned())));
        assert_eq!(timings.failures(), ["stage some: no luck"]);
    }

    #[test]
    fn results_are_summed_over_all_logs() {
        let logs = ["test a ... ok\ntest b ... FAILED\n", "test a ... ok\n"];
        assert_eq!(sum(logs.map(Outcomes::read).iter()), "2 passed, 1 failed");
    }

    #[test]
    fn flaky_tests_are_listed_with_their_stage() {
        let retried = "  TRY 2 PASS [   0.004s] (1/1) probe intent::retried\n";
        let outcomes = [
            (
                "tests",
                Outcomes::read("        PASS [   0.007s] (1/1) probe steady\n"),
            ),
            ("security", Outcomes::read(retried)),
        ];
        let rows = flaky_rows(&outcomes);
        assert_eq!(rows, [["security", "probe intent::retried"]]);
        assert_eq!(
            flaky_table(rows),
            "stage     FLAKY: passed only when retried\nsecurity  probe intent::retried\n"
        );
    }
}
