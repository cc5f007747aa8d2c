//! `cargo xtask mutations`: enables each planted defect and requires that the test named for it fails.
//!
//! The normal run has already shown that these tests pass. The test command is the same, so that nothing is rebuilt; only
//! `CONSIGN_PLANT` differs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use crate::TaskResult;
use crate::checklist::{self, Checklist};
use crate::context::{self, Context};
use crate::flags::{Flag, Flags};
use crate::markdown;
use crate::outcome::{Outcomes, ids_in};
use crate::process::{self, ChildExit, Output};
use crate::report;
use crate::tools::{self, Runner, Selection, TestLedger};

pub(crate) const HELP: &str = "
Usage: cargo xtask mutations [--face FACE]

For each row of docs/conformance/mutations.md (plant, id it breaks, part of a test's name) runs the tests of
that name with CONSIGN_PLANT set to the plant, over SQLite and, if that finds nothing, over PostgreSQL. At least
one must run, and one with the id must fail.
Fails if a plant survives, or if a face has fewer than ten of them.

  --face FACE  one face only, such as intent; all by default
";

const PATH: &str = "docs/conformance/mutations.md";
const COLUMNS: &[&str] = &["plant", "breaks", "test"];
const PLANTS_PER_FACE_MIN: usize = 10;
/// The variable that enables a planted defect.
const VARIABLE: &str = "CONSIGN_PLANT";

const FLAGS: &[Flag] = &[Flag::valued("--face")];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    run(context, flags.value("--face"))
}

pub(crate) fn run(context: &Context, face: Option<&str>) -> TaskResult {
    let all = parse(&context.read(PATH)?).map_err(|error| format!("{PATH}:{error}"))?;
    let mut failures = Vec::new();
    let mut checklists = Vec::new();
    for face in checklist::faces(context, face)? {
        checklists.push((checklist::load(context, &face)?, face));
    }
    let mut chosen = Vec::new();
    for (checklist, face) in &checklists {
        let before = chosen.len();
        chosen.extend(
            all.iter()
                .filter(|mutation| mutation.is_of(checklist))
                .map(|mutation| (mutation, checklist)),
        );
        if checklist.being_built.is_none() {
            failures.extend(shortage(face, chosen.len() - before));
        }
    }
    let judged = chosen.len();
    let mut rows = vec![["plant", "breaks", "verdict"].map(str::to_owned).to_vec()];
    for ((mutation, _), verdict) in chosen.iter().zip(attempt_all(context, &chosen)?) {
        let shown = match verdict {
            Verdict::Caught(by) => format!("caught by {by}"),
            Verdict::Survived(why) => {
                failures.push(format!("{} survived: {why}", mutation.plant));
                format!("SURVIVED: {why}")
            }
        };
        rows.push(vec![mutation.plant.clone(), mutation.breaks.clone(), shown]);
    }
    if face.is_none() && judged < all.len() {
        failures.push(format!(
            "{} rows of {PATH} belong to no checklist",
            all.len() - judged
        ));
    }
    print!("\n{}", report::table(&rows));
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(format!("mutations: {}", failures.join("; "))),
    }
}

/// One row of the document.
#[derive(Debug)]
struct Mutation {
    plant: String,
    breaks: String,
    test: String,
}

impl Mutation {
    fn is_of(&self, checklist: &Checklist) -> bool {
        self.breaks.split('-').next() == Some(&checklist.prefix)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Caught(String),
    Survived(String),
}

fn parse(text: &str) -> Result<Vec<Mutation>, String> {
    let mut plants = BTreeSet::new();
    let mut mutations = Vec::new();
    for row in markdown::rows(text, COLUMNS) {
        let line = row.line;
        let [plant, breaks, test] = row.cells.as_slice() else {
            return Err(format!("{line}: a row needs {} cells", COLUMNS.len()));
        };
        // The name becomes part of a filter expression.
        let plain = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        if plant.is_empty() || test.is_empty() || !test.chars().all(plain) {
            return Err(format!(
                "{line}: a row needs a plant and part of a test's name"
            ));
        }
        if !plants.insert(plant.clone()) {
            return Err(format!("{line}: plant {plant} is listed twice"));
        }
        mutations.push(Mutation {
            plant: plant.clone(),
            breaks: breaks.clone(),
            test: test.clone(),
        });
    }
    Ok(mutations)
}

fn shortage(face: &str, count: usize) -> Option<String> {
    (count < PLANTS_PER_FACE_MIN).then(|| {
        format!("face {face} has {count} plants in {PATH}, and {PLANTS_PER_FACE_MIN} is the least")
    })
}

/// Runs as many at once as the tests do, since most of such a run is the start of cargo and of the runner. Each thread takes
/// the next one when it is free, because some take ten times as long as others.
fn attempt_all(
    context: &Context,
    chosen: &[(&Mutation, &Checklist)],
) -> Result<Vec<Verdict>, String> {
    let next = AtomicUsize::new(0);
    let attempt_next = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let (mutation, checklist) = chosen.get(index)?;
        Some((index, attempt(context, mutation, checklist)))
    };
    let mut verdicts: Vec<_> = thread::scope(|scope| {
        let work = || std::iter::from_fn(attempt_next).collect::<Vec<_>>();
        let threads: Vec<_> = (0..tools::at_once()).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(ScopedJoinHandle::join);
        done.flat_map(|done| done.expect("an attempt does not panic"))
            .collect()
    });
    verdicts.sort_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

fn attempt(
    context: &Context,
    mutation: &Mutation,
    checklist: &Checklist,
) -> Result<Verdict, String> {
    if !checklist.has(&mutation.breaks) {
        let why = format!("{} is not in the checklist", mutation.breaks);
        return Ok(Verdict::Survived(why));
    }
    let mut verdict = Verdict::Survived(String::new());
    for ledger in [TestLedger::Sqlite, TestLedger::Postgres] {
        verdict = attempt_on(context, mutation, checklist, ledger)?;
        if matches!(verdict, Verdict::Caught(_)) {
            break;
        }
    }
    Ok(verdict)
}

fn attempt_on(
    context: &Context,
    mutation: &Mutation,
    checklist: &Checklist,
    ledger: TestLedger,
) -> Result<Verdict, String> {
    let selection = Selection::Named(&mutation.test);
    let mut command = Runner::find(context).command(context, selection, ledger);
    command.env(VARIABLE, &mutation.plant);
    let log = context
        .work_folder()
        .join("mutations")
        .join(format!("{}.log", mutation.plant));
    let ended = process::run(command, Output::Logged(&log), context.deadline)?;
    if ended == ChildExit::TimedOut {
        ended.require_success(&format!("the run with plant {}", mutation.plant))?;
    }
    let outcomes = Outcomes::read(&context::read(&log)?);
    Ok(judge(
        mutation,
        &checklist.prefix,
        &outcomes,
        ended.success(),
    ))
}

fn judge(mutation: &Mutation, prefix: &str, outcomes: &Outcomes, run_succeeded: bool) -> Verdict {
    let results: Vec<(&str, bool)> = outcomes.iter().collect();
    let has_the_id = |name: &str| ids_in(name, prefix).contains(&mutation.breaks);
    let caught = results
        .iter()
        .find(|(name, passed)| !passed && has_the_id(name));
    match caught {
        _ if results.is_empty() => {
            Verdict::Survived(format!("no test matching `{}` ran", mutation.test))
        }
        // The runner failed too, so this line is a result of the runner and not the output of a test.
        Some((name, _)) if !run_succeeded => Verdict::Caught((*name).to_owned()),
        _ if results.iter().all(|(_, passed)| *passed) => {
            Verdict::Survived(format!("nothing failed, {} ran", results.len()))
        }
        _ => Verdict::Survived(format!(
            "the tests that failed do not have the id {}",
            mutation.breaks
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation() -> Mutation {
        let text = "| plant | breaks | test |\n|---|---|---|\n| skip-token | IP-031 | ip_031 |\n";
        parse(text).unwrap().remove(0)
    }

    fn survives(log: &str, run_succeeded: bool) -> bool {
        let verdict = judge(&mutation(), "IP", &Outcomes::read(log), run_succeeded);
        matches!(verdict, Verdict::Survived(_))
    }

    #[test]
    fn only_a_failing_test_with_the_id_catches_a_plant() {
        assert!(!survives("test ip_031_stale_token ... FAILED\n", false));
        assert!(survives("test ip_031_stale_token ... ok\n", true));
        assert!(survives("test ip_030_other ... FAILED\n", false));
        assert!(survives("error: could not compile `consign`\n", false));
    }

    #[test]
    fn ten_plants_are_the_least() {
        assert_eq!(shortage("intent", 10), None);
        assert!(shortage("intent", 9).unwrap().contains("intent has 9"));
    }

    #[test]
    fn a_plant_listed_twice_or_an_odd_filter_is_refused() {
        let table =
            |rows: &str| parse(&format!("| plant | breaks | test |\n|---|---|---|\n{rows}"));
        assert!(table("| a | IP-001 | ip_001 |\n| a | IP-002 | ip_002 |\n").is_err());
        assert!(table("| a | IP-001 | x) or test(y |\n").is_err());
        assert!(table("| a | IP-001 |\n").is_err());
    }
}
