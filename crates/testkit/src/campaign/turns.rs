//! A campaign: stretches with one fault each, in turn, until the rounds or the time are used up.
//!
//! Invariant: a stretch follows from the campaign's seed and its number alone, and its result is on disk before the
//! next one begins; so a campaign that was ended anywhere goes on with its next stretch.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a campaign speaks through its lines"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use super::findings::{Findings, Promise};
use super::plan::{Named, Plan};
use super::report;
use super::results::{Outcome, Results};
use crate::chance::Chance;
use crate::run_folder::{self, RunFolder};

/// One kind of campaign.
pub trait Kind: Sized {
    type Fault: Named;
    /// The name of the program and of its files.
    const NAME: &'static str;
    /// Longer stretches would spend more time on what they check at their end.
    const STRETCH_ROUNDS_MAX: u64;

    /// Makes ready what the stretches share, in the campaign's folder.
    fn prepare(plan: &Plan<Self::Fault>, folder: &Path) -> io::Result<Self>;

    /// Carries out a stretch in a folder of its own. What it found, it also notes. When it did not end well, whatever
    /// helps to understand that stays in the folder.
    fn stretch(&self, task: &Task<'_, Self::Fault>, findings: &mut Findings) -> io::Result<Ran>;

    /// What is left to do when all stretches were clean, and what must have been checked then, whatever the faults were.
    fn finish(&self, _: &Path, _: &mut Findings) -> io::Result<&'static [Promise]> {
        Ok(&[])
    }
}

/// What a stretch is to do.
#[derive(Debug)]
pub struct Task<'a, F> {
    pub fault: F,
    pub seed: u64,
    pub rounds: u64,
    pub folder: &'a Path,
}

/// What a stretch did.
#[derive(Debug, Default)]
pub struct Ran {
    pub rounds: u64,
    pub kills: u64,
    pub operations: u64,
    pub also: Option<(&'static str, u64)>,
    /// What should be known about how the fault was made.
    pub about: String,
}

/// Carries out the campaign that the words of the command line ask for.
pub fn run<K: Kind>(words: impl Iterator<Item = String>) -> ExitCode {
    let plan = match Plan::parse(words) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}\nusage: {} {}", K::NAME, super::plan::USAGE);
            return ExitCode::from(2);
        }
    };
    println!("seed {}", plan.seed);
    if let Some(told) = &plan.before.left_aside {
        println!("{told}");
    }
    match Turns::<K>::prepare(plan) {
        Ok(turns) => turns.carry_out(),
        Err(error) => {
            run_folder::unless_ending();
            not_carried_out(&error)
        }
    }
}

/// Nothing was found, because the campaign itself failed.
pub fn not_carried_out(error: &io::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

struct Turns<K: Kind> {
    plan: Plan<K::Fault>,
    kind: K,
    folder: RunFolder,
    results: Results,
    findings: Findings,
    /// Faults that had their turn in this slice; the findings are of this slice too.
    done: Vec<K::Fault>,
    /// Words that repeat the last stretch alone.
    last: String,
}

impl<K: Kind> Turns<K> {
    fn prepare(plan: Plan<K::Fault>) -> io::Result<Self> {
        let prefix = format!("consign-{}-", K::NAME);
        let folder = RunFolder::make(&std::env::temp_dir(), &prefix)?;
        folder.end_on_signal()?;
        Ok(Self {
            kind: K::prepare(&plan, folder.path())?,
            folder,
            results: plan.before.clone(),
            findings: Findings::new(K::NAME),
            done: Vec::new(),
            last: String::new(),
            plan,
        })
    }

    fn carry_out(mut self) -> ExitCode {
        // A server that misbehaves can also derail the campaign; then what was found counts.
        let taken = self.take_turns();
        run_folder::unless_ending();
        let exit = taken.err().map(|error| not_carried_out(&error));
        if let Some(exit) = exit
            && self.findings.is_clean()
        {
            eprintln!("repeat with: {}", self.last);
            eprintln!("{}", self.keep());
            return exit;
        }
        let results = &self.results;
        println!(
            "{} kills, {} operations, {:.1} s",
            results.kills, results.operations, results.seconds
        );
        if report::promises(&self.findings) {
            return ExitCode::SUCCESS;
        }
        println!("repeat with: {}", self.last);
        println!("{}", self.keep());
        ExitCode::from(1)
    }

    /// Runs until a promise is broken or all is done.
    fn take_turns(&mut self) -> io::Result<()> {
        let started = Instant::now();
        let weights: u64 = self.plan.faults.iter().map(|fault| fault.weight()).sum();
        let rounds = self.plan.rounds.div_ceil(weights.max(1)).max(1);
        while self.results.rounds < self.plan.rounds {
            if started.elapsed() >= self.plan.limit {
                break;
            }
            let most = (rounds * self.next().weight()).min(K::STRETCH_ROUNDS_MAX);
            let rounds = most.min(self.plan.rounds - self.results.rounds);
            let outcome = self.stretch(rounds)?;
            self.results.add(&outcome)?;
            report::stretch(&outcome, &self.results);
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        let findings = &mut self.findings;
        let mut due = Promise::ALWAYS.to_vec();
        due.extend(self.kind.finish(self.folder.path(), findings)?);
        due.extend(self.done.iter().flat_map(|fault| fault.promises()));
        findings.completed(due);
        Ok(())
    }

    /// The fault whose turn it is.
    fn next(&self) -> K::Fault {
        let faults = &self.plan.faults;
        let turn = self.results.stretches % faults.len() as u64;
        faults[usize::try_from(turn).unwrap_or(0)]
    }

    fn stretch(&mut self, rounds: u64) -> io::Result<Outcome> {
        let (number, fault) = (self.results.stretches, self.next());
        // The first one has the seed itself, so that any stretch can be repeated as the first of another campaign.
        let seed = match number {
            0 => self.plan.seed,
            _ => Chance::new(self.plan.seed).branch(0, number).draw(),
        };
        self.last = format!("--seed {seed} --fault {} --rounds {rounds}", fault.name());
        let name = format!("{number}-{}", fault.name());
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        let started = Instant::now();
        let task = Task {
            fault,
            seed,
            rounds,
            folder: &folder,
        };
        let ran = self.kind.stretch(&task, &mut self.findings)?;
        self.done.push(fault);
        if self.findings.is_clean() {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(Outcome {
            seed: self.plan.seed,
            stretch: number,
            stretch_seed: seed,
            fault: format!("{}{}", fault.name(), ran.about),
            plant: self.plan.plant.clone(),
            rounds: ran.rounds,
            kills: ran.kills,
            operations: ran.operations,
            also: ran.also,
            seconds: started.elapsed().as_secs_f64(),
            broken: self.findings.broken(),
        })
    }

    /// Leaves all files where they are, and says where.
    fn keep(self) -> String {
        let kept: PathBuf = self.folder.keep();
        format!("histories, data and log are kept in {}", kept.display())
    }
}
