//! The command line of a campaign.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::findings::Promise;
use super::results::Results;
use crate::results::Revision;

/// The arguments of every campaign.
pub const USAGE: &str = "--consign BIN [--rounds N] [--minutes M] [--seed S] [--fault NAME]... [--plant NAME] \
                         [--results FILE] [--revision R] [--resume | --resume-dirty]";
/// The longest slice of a campaign; resume it for more.
const MINUTES_MAX: u64 = 30;

/// A fault of a campaign.
pub trait CampaignFault: Copy + PartialEq + 'static {
    const ALL: &'static [Self];

    fn name(self) -> &'static str;

    /// The promises that a campaign with this fault must check, beside those of all campaigns.
    fn promises(self) -> &'static [Promise];

    /// Its number of rounds relative to the others.
    fn weight(self) -> u64 {
        1
    }

    fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|fault| fault.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|fault| fault.name()).collect();
            let names = names.join(", ");
            format!("there is no fault {name}; the faults are {names}")
        })
    }
}

#[derive(Debug)]
pub struct Plan<F> {
    pub consign: PathBuf,
    /// In total, including resumed ones.
    pub rounds: u64,
    pub limit: Duration,
    pub seed: u64,
    pub plant: Option<String>,
    pub faults: Vec<F>,
    /// The results of earlier slices.
    pub before: Results,
}

impl<F: CampaignFault> Plan<F> {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut consign, mut rounds, mut seed, mut plant) = (None, None, None, None);
        let (mut minutes, mut results, mut revision) = (None, None, Revision::default());
        let (mut resume, mut dirty) = (false, false);
        let mut faults = Vec::new();
        while let Some(word) = words.next() {
            if word == "--resume" || word == "--resume-dirty" {
                resume = true;
                dirty |= word == "--resume-dirty";
                continue;
            }
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| format!("{word} {text} is not a number"))
            };
            match word.as_str() {
                "--consign" => consign = Some(PathBuf::from(&value)),
                "--rounds" => rounds = Some(number(&value)?),
                "--minutes" => minutes = Some(number(&value)?),
                "--seed" => seed = Some(number(&value)?),
                "--fault" => faults.push(F::named(&value)?),
                "--plant" => plant = Some(value),
                "--results" => results = Some(PathBuf::from(value)),
                "--revision" => revision = Revision::from(value),
                _ => return Err(format!("{word} is not known")),
            }
        }
        if rounds.is_none() && minutes.is_none() {
            return Err("--rounds or --minutes is missing".to_owned());
        }
        let (before, seed) = if resume {
            let path = results.ok_or("--resume needs --results")?;
            revision.demand_resumable(dirty)?;
            Results::resume(&path, revision, seed)
                .map_err(|error| format!("{}: {error}", path.display()))?
        } else {
            (
                Results::fresh(results, revision),
                seed.unwrap_or_else(fresh_seed),
            )
        };
        Ok(Self {
            consign: consign.ok_or("--consign is missing")?,
            rounds: rounds.unwrap_or(u64::MAX),
            limit: Duration::from_secs(60 * minutes.unwrap_or(MINUTES_MAX).min(MINUTES_MAX)),
            seed,
            plant,
            faults: if faults.is_empty() {
                F::ALL.to_vec()
            } else {
                faults
            },
            before,
        })
    }
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| u64::from(since.subsec_nanos()))
}
