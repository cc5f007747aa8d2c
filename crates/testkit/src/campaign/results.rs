//! The totals of a campaign, and its lines in the results file: one per trial, so that it can be resumed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::results::{self, Revision};

/// The result of one trial.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    pub trial: u64,
    pub trial_seed: u64,
    /// Its name, with details.
    pub fault: String,
    pub plant: Option<String>,
    pub rounds: u64,
    pub kills: u64,
    pub operations: u64,
    /// A further counter of this kind of campaign.
    pub also: Option<(&'static str, u64)>,
    pub seconds: f64,
    pub broken: Vec<String>,
}

/// The totals of a campaign, and its results file.
#[derive(Debug, Clone, Default)]
pub struct Results {
    path: Option<PathBuf>,
    revision: Revision,
    /// A note about results of other revisions.
    pub left_aside: Option<String>,
    pub trials: u64,
    pub rounds: u64,
    pub kills: u64,
    pub operations: u64,
    pub seconds: f64,
}

impl Results {
    /// Starts a new campaign; the file keeps the lines of others.
    pub fn fresh(path: Option<PathBuf>, revision: Revision) -> Self {
        Self {
            path,
            revision,
            ..Self::default()
        }
    }

    /// Resumes the campaign of this seed, or the last one in the file, of this revision.
    pub fn resume(path: &Path, revision: Revision, seed: Option<u64>) -> io::Result<(Self, u64)> {
        let lines = results::read(path, &revision)?;
        let last = lines.own.last().and_then(|line| line["seed"].as_u64());
        let seed = seed.or(last).ok_or_else(|| {
            let aside = lines.aside;
            io::Error::other(format!(
                "there is no campaign of {revision} to resume ({aside} results of other revisions)"
            ))
        })?;
        let mut results = Self {
            left_aside: lines.left_aside(),
            ..Self::fresh(Some(path.to_owned()), revision)
        };
        for line in lines.own.iter().filter(|line| line["seed"] == seed) {
            let number = |name: &str| line[name].as_u64().unwrap_or(0);
            results.trials = results.trials.max(number("stretch") + 1);
            results.rounds += number("rounds");
            results.kills += number("kills");
            results.operations += number("operations");
            results.seconds += line["seconds"].as_f64().unwrap_or(0.0);
        }
        Ok((results, seed))
    }

    pub fn add(&mut self, result: &Outcome) -> io::Result<()> {
        self.trials = result.trial + 1;
        self.rounds += result.rounds;
        self.kills += result.kills;
        self.operations += result.operations;
        self.seconds += result.seconds;
        match &self.path {
            Some(path) => results::append(path, &self.revision, line(result)),
            None => Ok(()),
        }
    }
}

fn line(result: &Outcome) -> Value {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut line = json!({
        "time": since.as_secs(),
        "seed": result.seed,
        "stretch": result.trial,
        "stretch_seed": result.trial_seed,
        "fault": result.fault,
        "plant": result.plant,
        "rounds": result.rounds,
        "kills": result.kills,
        "operations": result.operations,
        "seconds": (result.seconds * 10.0).round() / 10.0,
        "broken": result.broken,
    });
    if let Some((name, count)) = result.also {
        line[name] = json!(count);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_goes_on_where_its_last_whole_line_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let revision = || Revision::from("a".to_owned());
        let mut results = Results::fresh(Some(path.clone()), revision());
        let mut result = Outcome {
            seed: 7,
            trial: 0,
            trial_seed: 7,
            fault: "power".to_owned(),
            plant: None,
            rounds: 20,
            kills: 20,
            operations: 1_000,
            also: Some(("lost_writes", 3)),
            seconds: 2.0,
            broken: Vec::new(),
        };
        results.add(&result).unwrap();
        result.trial = 1;
        results.add(&result).unwrap();
        std::fs::write(
            &path,
            std::fs::read_to_string(&path).unwrap() + "{\"seed\":7,\"ro",
        )
        .unwrap();
        let (resumed, seed) = Results::resume(&path, revision(), None).unwrap();
        assert!(resumed.left_aside.is_none());
        assert_eq!(seed, 7);
        assert_eq!((resumed.trials, resumed.rounds), (2, 40));
        assert_eq!((resumed.kills, resumed.operations), (40, 2_000));
        let (other, _) = Results::resume(&path, revision(), Some(8)).unwrap();
        assert_eq!(other.trials, 0);
        let newer = || Revision::from("b".to_owned());
        assert!(Results::resume(&path, newer(), None).is_err());
        let (newer, _) = Results::resume(&path, newer(), Some(7)).unwrap();
        assert_eq!(newer.trials, 0);
        assert!(newer.left_aside.unwrap().starts_with("2 results"));
    }
}
