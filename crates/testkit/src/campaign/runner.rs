//! Runs a campaign: trials with one fault each, in turn, until the rounds or the time are used up.
//!
//! Invariant: a trial depends only on the campaign's seed and its number, and its result is on disk before the next
//! one begins; so an interrupted campaign resumes with its next trial.
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
use super::plan::{CampaignFault, Plan};
use super::report;
use super::results::{Outcome, Results};
use crate::run_folder::{self, RunFolder};
use crate::seeded_random::SeededRandom;

/// One kind of campaign.
pub trait CampaignKind: Sized {
    type Fault: CampaignFault;
    /// The name of the program and of its files.
    const NAME: &'static str;
    /// Longer trials would spend more time on their final checks.
    const TRIAL_ROUNDS_MAX: u64;

    /// Prepares the shared state of the trials, in the campaign's folder.
    fn prepare(plan: &Plan<Self::Fault>, folder: &Path) -> io::Result<Self>;

    /// Runs a trial in its own folder. Violations are added to `findings`. After a failure the files of the trial
    /// stay in the folder.
    fn trial(
        &self,
        task: &TrialTask<'_, Self::Fault>,
        findings: &mut Findings,
    ) -> io::Result<TrialReport>;

    /// Final checks after all trials were clean; returns the promises that must have been checked by then.
    fn finish(&self, _: &Path, _: &mut Findings) -> io::Result<&'static [Promise]> {
        Ok(&[])
    }
}

/// The parameters of a trial.
#[derive(Debug)]
pub struct TrialTask<'a, F> {
    pub fault: F,
    pub seed: u64,
    pub rounds: u64,
    pub folder: &'a Path,
}

/// The result of a trial.
#[derive(Debug, Default)]
pub struct TrialReport {
    pub rounds: u64,
    pub kills: u64,
    pub operations: u64,
    pub also: Option<(&'static str, u64)>,
    /// Details about how the fault was injected.
    pub about: String,
}

/// Runs the campaign that the command line describes.
pub fn run<K: CampaignKind>(words: impl Iterator<Item = String>) -> ExitCode {
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
    match CampaignRunner::<K>::prepare(plan) {
        Ok(runner) => runner.carry_out(),
        Err(error) => {
            run_folder::unless_ending();
            not_carried_out(&error)
        }
    }
}

/// The campaign itself failed, so nothing was found.
pub fn not_carried_out(error: &io::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

struct CampaignRunner<K: CampaignKind> {
    plan: Plan<K::Fault>,
    kind: K,
    folder: RunFolder,
    results: Results,
    findings: Findings,
    /// Faults of this slice; the findings are of this slice too.
    done: Vec<K::Fault>,
    /// The arguments that repeat the last trial.
    last: String,
}

impl<K: CampaignKind> CampaignRunner<K> {
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
        // A faulty server can also make the campaign fail; then the violations count.
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
        // A promise that was not checked is not broken: it must not pass for a planted defect that was found.
        let code = if self.findings.is_clean() { 2 } else { 1 };
        println!("{}", self.keep());
        ExitCode::from(code)
    }

    /// Runs until a violation or the end.
    fn take_turns(&mut self) -> io::Result<()> {
        let started = Instant::now();
        let weights: u64 = self.plan.faults.iter().map(|fault| fault.weight()).sum();
        let rounds = self.plan.rounds.div_ceil(weights.max(1)).max(1);
        while self.results.rounds < self.plan.rounds {
            if started.elapsed() >= self.plan.limit {
                break;
            }
            let most = (rounds * self.next().weight()).min(K::TRIAL_ROUNDS_MAX);
            let rounds = most.min(self.plan.rounds - self.results.rounds);
            let outcome = self.trial(rounds)?;
            self.results.add(&outcome)?;
            report::trial(&outcome, &self.results);
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

    /// The next fault.
    fn next(&self) -> K::Fault {
        let faults = &self.plan.faults;
        let turn = self.results.trials % faults.len() as u64;
        faults[usize::try_from(turn).unwrap_or(0)]
    }

    fn trial(&mut self, rounds: u64) -> io::Result<Outcome> {
        let (number, fault) = (self.results.trials, self.next());
        // The first trial uses the seed itself, so that any trial can be repeated as the first of another campaign.
        let seed = match number {
            0 => self.plan.seed,
            _ => SeededRandom::new(self.plan.seed).branch(0, number).draw(),
        };
        self.last = format!("--seed {seed} --fault {} --rounds {rounds}", fault.name());
        let name = format!("{number}-{}", fault.name());
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        let started = Instant::now();
        let task = TrialTask {
            fault,
            seed,
            rounds,
            folder: &folder,
        };
        let ran = self.kind.trial(&task, &mut self.findings)?;
        self.done.push(fault);
        if self.findings.is_clean() {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(Outcome {
            seed: self.plan.seed,
            trial: number,
            trial_seed: seed,
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

    /// Keeps all files and returns their location.
    fn keep(self) -> String {
        let kept: PathBuf = self.folder.keep();
        format!("histories, data and log are kept in {}", kept.display())
    }
}
