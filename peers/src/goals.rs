//! Our goals that need no other queue: each is measured in alternating rounds and compared with its target value.
//!
//! A family of goals is measured side by side inside a round, so that both sides of a ratio see the same minute.
//! Invariant: every selected goal is in the table, and none is judged by a round that the hypervisor disturbed or by a
//! quick run.

mod options;
mod probe;
mod report;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub(crate) use options::Options;
use probe::{Bench, Measurement, Probe, Size};
use table::{FAMILIES, Goal};

use crate::error::Error;
use crate::figures::Spread;
use crate::subject::{Environment, Tools};
use crate::{data_folder, machine, rounds};

/// A round in which the hypervisor took more than this share of the machine does not count.
const STOLEN_MAX: f64 = 0.015;

/// The measurements of one round, by probe.
type Measurements = BTreeMap<Probe, Measurement>;

/// The results of a run.
#[derive(Debug, Serialize)]
struct Findings {
    /// Whether the numbers were too small to mean anything.
    quick: bool,
    rounds: u64,
    seconds: f64,
    rows: Vec<Row>,
    failures: Vec<String>,
}

/// A goal with its figures.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    goal: Goal,
    found: Option<Spread>,
    /// In the order of rounds, disturbed ones included.
    figures: Vec<Option<f64>>,
    /// Rounds left out of `found`, because too much of the machine was stolen.
    stolen_rounds: usize,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Reached,
    NotReached,
    /// There was no round to judge by, or the run was a quick one.
    NotJudged,
}

/// Whether everything could be measured; goals that are not reached are no failure of the measurement.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    if options.list {
        for goal in FAMILIES.iter().copied().flatten() {
            println!("{:<18}{}", goal.name, goal.about);
        }
        return Ok(true);
    }
    let families = table::chosen(&options.only)?;
    let folder = data_folder::create(&options.dir)?;
    // Only our own program is started here.
    let tools = Tools {
        consign: options.consign.clone(),
        nats: PathBuf::new(),
        node: PathBuf::new(),
    };
    let mut bench = Bench::new(
        &options.consign,
        folder.path(),
        size(options),
        Environment::new(folder.path().to_owned(), tools),
    )?;
    let findings = measure(options, &families, &mut bench)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print!("{}", report::text(&findings));
    }
    Ok(findings.failures.is_empty())
}

fn size(options: &Options) -> Size {
    let mut size = if options.quick {
        Size::QUICK
    } else {
        Size::FULL
    };
    size.seconds = options.seconds.unwrap_or(size.seconds);
    size
}

fn measure(
    options: &Options,
    families: &[Vec<Goal>],
    bench: &mut Bench,
) -> Result<Findings, Error> {
    let rounds = options.rounds();
    let mut findings = Findings {
        quick: options.quick,
        rounds,
        seconds: size(options).seconds,
        rows: Vec::new(),
        failures: Vec::new(),
    };
    let mut measured: Vec<Vec<Measurements>> = vec![Vec::new(); families.len()];
    for round in 1..=rounds {
        for (family, measured) in families.iter().zip(&mut measured) {
            let lock = options.lock.as_deref().map(rounds::lock_file).transpose()?;
            measured.push(measurements(
                options,
                family,
                bench,
                round,
                &mut findings.failures,
            ));
            drop(lock);
        }
    }
    for (family, rounds) in families.iter().zip(&measured) {
        let rows = family.iter().map(|goal| row(goal, rounds, options.quick));
        findings.rows.extend(rows);
    }
    Ok(findings)
}

/// One round of one family: each probe that one of its goals needs, once.
fn measurements(
    options: &Options,
    family: &[Goal],
    bench: &mut Bench,
    round: u64,
    failures: &mut Vec<String>,
) -> Measurements {
    let mut measurements = Measurements::new();
    for probe in table::probes(family) {
        eprintln!("round {round}: {probe:?}");
        let quiet = if options.quick {
            Ok(0.0)
        } else {
            machine::wait_until_quiet()
        };
        match quiet.and_then(|_| bench.measure(probe)) {
            Ok(measurement) => {
                measurements.insert(probe, measurement);
            }
            Err(error) => failures.push(format!("{probe:?}, round {round}: {error}")),
        }
    }
    measurements
}

fn row(goal: &Goal, rounds: &[Measurements], is_quick: bool) -> Row {
    let figures: Vec<Option<f64>> = rounds
        .iter()
        .map(|measurements| goal.figure.of(measurements))
        .collect();
    let is_stolen = |measurements: &Measurements| {
        let mut probes = goal.figure.timed_probes();
        probes.any(|probe| {
            measurements
                .get(&probe)
                .is_some_and(|measurement| measurement.stolen > STOLEN_MAX)
        })
    };
    let stolen: Vec<bool> = rounds.iter().map(is_stolen).collect();
    let clean = figures.iter().zip(&stolen).filter(|(_, stolen)| !**stolen);
    let found = Spread::of(clean.filter_map(|(figure, _)| *figure));
    Row {
        found,
        stolen_rounds: stolen.iter().filter(|stolen| **stolen).count(),
        verdict: match found {
            Some(found) if !is_quick => goal.judge(found.median),
            _ => Verdict::NotJudged,
        },
        figures,
        goal: *goal,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn measurement(cycles: f64, stolen: f64) -> Measurement {
        Measurement {
            report: json!({ "cycles_per_s": { "median": cycles } }),
            stolen,
        }
    }

    fn rounds(stolen: [f64; 3]) -> Vec<Measurements> {
        let [quiet, late, last] = stolen;
        let round = |ours, theirs: Measurement| {
            Measurements::from([(Probe::Cycle, ours), (Probe::Empty, theirs)])
        };
        vec![
            round(measurement(50.0, quiet), measurement(100.0, 0.0)),
            round(measurement(40.0, 0.0), measurement(100.0, late)),
            round(measurement(1.0, last), measurement(100.0, 0.0)),
        ]
    }

    #[test]
    fn rounds_with_stolen_time_on_either_side_are_left_out_and_counted() {
        let goal = table::chosen(&["empty".to_owned()]).unwrap()[0][0];
        let row = row(&goal, &rounds([0.0, 0.01, 0.2]), false);
        let found = row.found.unwrap();
        assert!((found.median - 0.45).abs() < 1e-9 && row.stolen_rounds == 1);
        assert_eq!((row.figures.len(), row.verdict), (3, Verdict::Reached));
    }

    #[test]
    fn neither_a_quick_run_nor_one_without_a_clean_round_is_judged() {
        let goal = table::chosen(&["empty".to_owned()]).unwrap()[0][0];
        let quick = row(&goal, &rounds([0.0; 3]), true);
        assert_eq!(quick.verdict, Verdict::NotJudged);
        let disturbed = row(&goal, &rounds([0.02; 3])[..2], false);
        assert_eq!((disturbed.found, disturbed.stolen_rounds), (None, 2));
        assert_eq!(disturbed.verdict, Verdict::NotJudged);
    }
}
