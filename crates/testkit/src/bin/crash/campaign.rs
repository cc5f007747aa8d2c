//! A campaign: stretches with one fault each, in turn, until the rounds or the time are used up.
//!
//! Invariant: a stretch follows from the campaign's seed and its number alone, and its result is on disk before the
//! next one begins; so a campaign that was ended anywhere goes on with its next stretch.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use consign_testkit::chance::Chance;
use consign_testkit::history;
use consign_testkit::shim::Shim;
use tempfile::TempDir;

use crate::fault::Fault;
use crate::findings::Findings;
use crate::results::{Result as StretchResult, Results};
use crate::stretch::{Ground, Stretch};
use crate::syncs;

/// Longer stretches would spend more time on what they check at their end.
const STRETCH_ROUNDS_MAX: u64 = 20;

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) consign: PathBuf,
    /// In all, resumed ones included.
    pub(crate) rounds: u64,
    pub(crate) limit: Duration,
    pub(crate) seed: u64,
    pub(crate) plant: Option<String>,
    pub(crate) faults: Vec<Fault>,
    /// What an earlier slice of this campaign did.
    pub(crate) before: Results,
}

#[derive(Debug)]
pub(crate) struct Campaign {
    plan: Plan,
    ground: Ground,
    folder: TempDir,
    results: Results,
    pub(crate) findings: Findings,
    /// Faults that had their turn in this slice; the findings are of this slice too.
    done: Vec<Fault>,
    /// Seed and fault of the last stretch, which repeat it alone.
    last: (u64, Fault, u64),
}

impl Campaign {
    pub(crate) fn prepare(plan: Plan) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("consign-crash-")
            .tempdir()?;
        let shim = Shim::build(folder.path())?;
        history::follow(shim.state_file())?;
        let ground = Ground {
            consign: plan.consign.clone(),
            plant: plan.plant.clone(),
            shim,
        };
        Ok(Self {
            ground,
            folder,
            results: plan.before.clone(),
            findings: Findings::default(),
            done: Vec::new(),
            last: (plan.seed, Fault::Kill, 0),
            plan,
        })
    }

    /// Runs until a promise is broken or all is done. Each stretch is told to `each` when it ends.
    pub(crate) fn run(&mut self, mut each: impl FnMut(&StretchResult, &Results)) -> io::Result<()> {
        let started = Instant::now();
        let faults = self.plan.faults.len() as u64;
        let most = self
            .plan
            .rounds
            .div_ceil(faults)
            .clamp(1, STRETCH_ROUNDS_MAX);
        while self.results.rounds < self.plan.rounds {
            if started.elapsed() >= self.plan.limit {
                break;
            }
            let rounds = most.min(self.plan.rounds - self.results.rounds);
            let result = self.stretch(rounds)?;
            self.results.add(&result)?;
            self.done.push(result.fault);
            each(&result, &self.results);
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        let data = self.folder.path().join("counted");
        syncs::judge(
            &self.ground.options(&data),
            &self.ground.shim,
            &mut self.findings,
        )?;
        self.findings.completed(&self.done);
        Ok(())
    }

    fn stretch(&mut self, rounds: u64) -> io::Result<StretchResult> {
        let number = self.results.stretches;
        let faults = &self.plan.faults;
        let turn = usize::try_from(number % faults.len() as u64).unwrap_or(0);
        let fault = faults[turn];
        // The first one has the seed itself, so that any stretch can be repeated as the first of another campaign.
        let seed = match number {
            0 => self.plan.seed,
            _ => Chance::new(self.plan.seed).branch(0, number).draw(),
        };
        self.last = (seed, fault, rounds);
        let folder = self
            .folder
            .path()
            .join(format!("{number}-{}", fault.name()));
        std::fs::create_dir(&folder)?;
        let started = Instant::now();
        let mut stretch = Stretch::prepare(&self.ground, fault, seed, &folder, &mut self.findings)?;
        let ran = stretch.run(rounds);
        let result = StretchResult {
            seed: self.plan.seed,
            stretch: number,
            stretch_seed: seed,
            fault,
            plant: self.plan.plant.clone(),
            rounds: stretch.rounds,
            kills: stretch.kills,
            operations: stretch.operations(),
            lost_writes: stretch.lost_writes,
            about: stretch.space.about(),
            seconds: started.elapsed().as_secs_f64(),
            broken: stretch.findings.broken(),
        };
        if ran.is_err() || !stretch.findings.is_clean() {
            stretch.keep()?;
        } else {
            drop(stretch);
            std::fs::remove_dir_all(&folder)?;
        }
        ran.map(|()| result)
    }

    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// How to see the last stretch again.
    pub(crate) fn repeat(&self) -> String {
        let (seed, fault, rounds) = self.last;
        format!("--seed {seed} --fault {} --rounds {rounds}", fault.name())
    }

    /// Leaves all files where they are.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}
