//! Runs many seeds: known failures first, then a range, in slices that can be resumed. Results are appended to a
//! file.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use consign_testkit::results::{self, Revision};
use serde_json::json;

use crate::beam;
use crate::ledger_checks::BrokenPromise;
use crate::mesh;
use crate::run::{EventCounts, SeedFailure, SeedResult, run};

pub(crate) const USAGE: &str = "usage: sim [--seed N] [--seeds K] [--steps M] [--minutes M] \
                                [--resume | --resume-dirty] [--results FILE] [--revision R] [--known FILE] [--only intent|beam|mesh]";

const STEPS: u64 = 200;
/// A step of Beam takes longer, so there are fewer.
const BEAM_STEPS_FRACTION: u64 = 2;
/// So does one of the mesh, with two machines.
const MESH_STEPS_FRACTION: u64 = 3;
/// The maximum length of a slice.
const MINUTES_MAX: u64 = 30;
/// Results are written after this many seeds; an interrupted slice loses no more.
const SEEDS_PER_LINE: u64 = 50;

/// The command line.
#[derive(Debug)]
pub(crate) struct SimPlan {
    seed: u64,
    seeds: u64,
    steps: u64,
    minutes: u64,
    resume: bool,
    results: Option<PathBuf>,
    revision: Revision,
    known: Option<PathBuf>,
    parts: Vec<SimPart>,
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimPart {
    Intent,
    Beam,
    Mesh,
}

impl SimPart {
    const ALL: [Self; 3] = [Self::Intent, Self::Beam, Self::Mesh];

    const fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Beam => "beam",
            Self::Mesh => "mesh",
        }
    }

    fn run(self, seed: u64, steps: u64) -> Result<SeedResult, SeedFailure> {
        match self {
            Self::Intent => run(seed, steps),
            Self::Beam => beam::run(seed, steps / BEAM_STEPS_FRACTION),
            Self::Mesh => mesh::run(seed, steps / MESH_STEPS_FRACTION),
        }
    }
}

impl SimPlan {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut plan = Self {
            seed: 1,
            seeds: 1,
            steps: STEPS,
            minutes: MINUTES_MAX,
            resume: false,
            results: None,
            revision: Revision::default(),
            known: None,
            parts: SimPart::ALL.to_vec(),
        };
        let mut dirty = false;
        while let Some(word) = words.next() {
            if word == "--resume" || word == "--resume-dirty" {
                plan.resume = true;
                dirty |= word == "--resume-dirty";
                continue;
            }
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{word} {value} is not a number"))
            };
            match word.as_str() {
                "--seed" => plan.seed = number()?,
                "--seeds" => plan.seeds = number()?,
                "--steps" => plan.steps = number()?,
                "--minutes" => plan.minutes = number()?.clamp(1, MINUTES_MAX),
                "--results" => plan.results = Some(PathBuf::from(value)),
                "--revision" => plan.revision = Revision::from(value),
                "--known" => plan.known = Some(PathBuf::from(value)),
                "--only" => {
                    let part = SimPart::ALL.into_iter().find(|part| part.name() == value);
                    plan.parts = vec![part.ok_or(format!("--only {value} is not known"))?];
                }
                _ => return Err(format!("{word} is not known")),
            }
        }
        if plan.resume && plan.results.is_none() {
            return Err("--resume needs --results, where it reads what is done".to_owned());
        }
        if plan.resume {
            plan.revision.demand_resumable(dirty)?;
        }
        Ok(plan)
    }

    fn part_names(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name()).collect();
        names.join("+")
    }
}

#[derive(Debug)]
pub(crate) struct SeedCampaign {
    plan: SimPlan,
    started: Instant,
    counts: EventCounts,
    /// The digest of all histories in their order: equal for equal seeds.
    digest: u64,
}

impl SeedCampaign {
    pub(crate) fn new(plan: SimPlan) -> Self {
        Self {
            plan,
            started: Instant::now(),
            counts: EventCounts::new(),
            digest: 0,
        }
    }

    /// Whether every promise was kept.
    pub(crate) fn run(&mut self) -> io::Result<bool> {
        let mut known = 0;
        for (seed, steps) in self.known()? {
            for part in self.plan.parts.clone() {
                if let Err(failure) = part.run(seed, steps) {
                    self.report(part, seed, steps, &failure);
                    return Ok(false);
                }
            }
            known += 1;
        }
        let range = self.range()?;
        let (first, end) = (range.start, range.end);
        let mut next = first;
        while next < end && self.started.elapsed() < self.limit() {
            let piece = next..end.min(next + SEEDS_PER_LINE);
            next = piece.end;
            if !self.piece(piece)? {
                return Ok(false);
            }
        }
        println!(
            "{known} known seeds and seeds {first} to {} of {} steps: every promise kept, {:.1} s{}",
            next.max(first + 1) - 1,
            self.plan.steps,
            self.started.elapsed().as_secs_f64(),
            if next < end {
                "; out of time, go on with --resume"
            } else {
                ""
            }
        );
        println!("digest of the client_checks: {:016x}", self.digest);
        for (what, count) in &self.counts {
            println!("{count:>10} {what}");
        }
        Ok(true)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.plan.minutes * 60)
    }

    fn piece(&mut self, seeds: Range<u64>) -> io::Result<bool> {
        let began = Instant::now();
        let failed = seeds.clone().find_map(|seed| Some((seed, self.one(seed)?)));
        let line = json!({
            "first": seeds.start,
            "last": failed.as_ref().map_or(seeds.end - 1, |(seed, _)| *seed),
            "steps": self.plan.steps,
            "parts": self.plan.part_names(),
            "seconds": began.elapsed().as_secs_f64(),
            "verdict": failed.as_ref().map_or("kept", |(_, broken)| broken),
        });
        if let Some(path) = &self.plan.results {
            results::append(path, &self.plan.revision, line)?;
        }
        Ok(failed.is_none())
    }

    /// The broken promise of the seed, if there is one.
    fn one(&mut self, seed: u64) -> Option<BrokenPromise> {
        for part in self.plan.parts.clone() {
            match part.run(seed, self.plan.steps) {
                Ok(kept) => {
                    self.digest = self.digest.rotate_left(1) ^ kept.digest;
                    for (what, count) in kept.counts {
                        *self.counts.entry(what).or_default() += count;
                    }
                }
                Err(failure) => {
                    self.report(part, seed, self.plan.steps, &failure);
                    return Some(failure.broken);
                }
            }
        }
        None
    }

    /// The seeds to run: all requested ones, or those after the last one in the results of this revision.
    fn range(&self) -> io::Result<Range<u64>> {
        let asked = self.plan.seed..self.plan.seed + self.plan.seeds;
        let Some(path) = self.plan.results.as_ref().filter(|_| self.plan.resume) else {
            return Ok(asked);
        };
        let lines = results::read(path, &self.plan.revision)?;
        if let Some(told) = lines.left_aside() {
            println!("{told}");
        }
        let mut next = asked.start;
        for line in lines.own {
            let same = line["steps"] == self.plan.steps
                && line["parts"] == self.plan.part_names()
                && line["verdict"] == "kept";
            if let (true, Some(first), Some(last)) =
                (same, line["first"].as_u64(), line["last"].as_u64())
                && first <= next
                && next <= last
            {
                next = last + 1;
            }
        }
        Ok(next.min(asked.end)..asked.end)
    }

    /// Seeds that failed once, one per line with their steps; `#` begins a comment.
    fn known(&self) -> io::Result<Vec<(u64, u64)>> {
        let Some(path) = &self.plan.known else {
            return Ok(Vec::new());
        };
        let mut known = Vec::new();
        for line in fs::read_to_string(path)?.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(seed) = words.next() else { continue };
            let numbers = seed
                .parse()
                .and_then(|seed| Ok((seed, words.next().unwrap_or("200").parse()?)));
            known.push(numbers.map_err(io::Error::other)?);
        }
        Ok(known)
    }

    fn report(&self, part: SimPart, seed: u64, steps: u64, failure: &SeedFailure) {
        let (part, step) = (part.name(), failure.step);
        println!("BROKEN after {step} steps of seed {seed}, {part}:");
        println!("  {}", failure.broken);
        println!("the last commands:");
        for line in &failure.tail {
            println!("{line}");
        }
        println!("again with: cargo xtask sim --seed {seed} --steps {steps}");
        println!(
            "{:.1} s; put `{seed} {steps}` into crates/testkit/sim-seeds.txt when it is understood",
            self.started.elapsed().as_secs_f64()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Result<SimPlan, String> {
        SimPlan::read(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn a_campaign_goes_on_after_the_seeds_that_its_own_revision_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let file = path.to_str().unwrap();
        let asked = |revision| {
            let words = ["--seeds", "9", "--resume", "--results", file, "--revision"];
            SeedCampaign::new(plan(&[&words[..], &[revision]].concat()).unwrap())
        };
        let done = |revision: &str, first: u64, last: u64| {
            let line = json!({
                "first": first, "last": last, "steps": STEPS, "parts": "intent+beam+mesh", "verdict": "kept",
            });
            results::append(&path, &Revision::from(revision.to_owned()), line).unwrap();
        };
        done("a", 1, 4);
        done("b", 1, 2);
        done("b+dirty", 3, 9);
        assert_eq!(asked("a").range().unwrap(), 5..10);
        assert_eq!(asked("b").range().unwrap(), 3..10);
        assert_eq!(asked("c").range().unwrap(), 1..10);
    }

    #[test]
    fn changed_code_is_resumed_only_if_it_is_asked_for() {
        let words = ["--results", "r", "--revision", "a+dirty"];
        assert!(plan(&[&words[..], &["--resume"]].concat()).is_err());
        let plan = plan(&[&words[..], &["--resume-dirty"]].concat()).unwrap();
        assert!(plan.resume);
    }
}
