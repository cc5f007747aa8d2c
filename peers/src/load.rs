//! The work of one round and its result, the same for every subject.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The shape of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// Half of the clients publish while the other half claims and acknowledges.
    Pairs,
    /// Each client publishes, claims and acknowledges in turn.
    Cycle,
}

impl FromStr for Work {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "pairs" => Ok(Self::Pairs),
            "cycle" => Ok(Self::Cycle),
            other => Err(format!("`{other}` is neither `pairs` nor `cycle`")),
        }
    }
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Cycle => "cycle",
        }
    }

    /// A single client cannot be split into two sides, so it runs the cycle.
    pub(crate) fn with(self, clients: usize) -> Self {
        if clients < 2 { Self::Cycle } else { self }
    }
}

/// Work before the measurement, for connections, caches and compilers.
pub(crate) const WARMUP_SECONDS: u64 = 1;

/// The parameters of one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) work: Work,
    pub(crate) clients: usize,
    pub(crate) seconds: u64,
    /// The number of the round within the run, so that each has a queue of its own.
    pub(crate) serial: u64,
}

impl Load {
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The name of the queue; no other round uses it.
    pub(crate) fn queue(&self) -> String {
        format!("round{}", self.serial)
    }
}

/// How long one kind of request took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) p50_ms: f64,
    /// Unknown if a program reports the mean only; `p50_ms` is then the mean.
    pub(crate) p99_ms: Option<f64>,
}

/// Processor time, as shares of one processor.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Busy {
    pub(crate) generator: f64,
    pub(crate) server: f64,
}

/// The result of one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RoundResult {
    /// Whole jobs, or syncs for the baseline that only syncs.
    pub(crate) jobs: u64,
    /// More than `jobs` where publishing is faster than claiming.
    pub(crate) published: u64,
    pub(crate) seconds: f64,
    pub(crate) steps: Vec<Step>,
    /// Errors and sums that do not match; empty when all is well.
    pub(crate) problems: Vec<String>,
    /// Reported by a generator that starts its server itself; otherwise both are read from `/proc`.
    #[serde(default)]
    pub(crate) busy: Option<Busy>,
}

impl RoundResult {
    pub(crate) fn per_second(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of a few seconds are far below 2^52"
        )]
        let jobs = self.jobs as f64;
        jobs / self.seconds
    }
}

/// A job of 200 bytes of JSON, the same for every subject.
pub(crate) fn body() -> String {
    let frame = r#"{"kind":"mail","to":"someone@example.org","text":""}"#;
    let text = "x".repeat(BODY_BYTES - frame.len());
    frame.replace(r#""text":"""#, &format!(r#""text":"{text}""#))
}

pub(crate) const BODY_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_json_of_the_announced_size() {
        assert_eq!(body().len(), BODY_BYTES);
        serde_json::from_str::<serde_json::Value>(&body()).unwrap();
    }

    #[test]
    fn a_single_client_always_cycles() {
        assert_eq!(Work::Pairs.with(1), Work::Cycle);
        assert_eq!(Work::Pairs.with(2), Work::Pairs);
    }
}
