//! Counters of the steps that this process committed, and how long rows waited, for metrics.
//!
//! Invariant: a counter never falls while the process runs, and there are never more than [`LABELS_MAX`] labels: who comes
//! later counts under [`OTHER`]. A label that moved between its own series and the common one would look like a restart.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::profile::Face;
use consign_store::{LabelSteps, StepCounts, StepTally, WaitKind};

/// How many pairs of namespace and goal have counters of their own, in the order in which a process meets them.
pub const LABELS_MAX: usize = 200;
/// Namespace and goal of the rows without counters of their own.
pub const OTHER: &str = "other";

/// The upper bounds of the buckets of a histogram of waits, in seconds.
const WAIT_BOUNDS_S: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0,
];

/// A histogram with the buckets of `WAIT_BOUNDS_S`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitHistogram {
    /// How many were in each bucket and not in an earlier one; those above all bounds are in `count` alone.
    buckets: [u64; WAIT_BOUNDS_S.len()],
    pub count: u64,
    pub sum_us: u64,
}

impl WaitHistogram {
    pub fn record(&mut self, us: i64) {
        let us = us.max(0).unsigned_abs();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a wait of 2^53 microseconds is longer than 285 years"
        )]
        let seconds = us as f64 / 1e6;
        if let Some(bucket) = WAIT_BOUNDS_S.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Each bound with the number of values up to it and above the bound before.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        WAIT_BOUNDS_S.into_iter().zip(self.buckets)
    }
}

/// The counters of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCounter {
    pub face: Face,
    pub namespace: String,
    pub goal: String,
    pub counts: StepCounts,
}

/// What a process has counted since its start.
#[derive(Clone, Debug, Default)]
pub struct StepFigures {
    /// The labels by face, namespace and goal; those of [`OTHER`] come last.
    pub labels: Vec<StepCounter>,
    /// How long rows waited, by face and by what for.
    pub waits: Vec<(Face, WaitKind, WaitHistogram)>,
}

impl StepFigures {
    /// The sums of a face.
    pub fn of_face(&self, face: Face) -> StepCounts {
        let mut sum = StepCounts::default();
        let own = self.labels.iter().filter(|label| label.face == face);
        own.for_each(|label| sum.add(&label.counts));
        sum
    }
}

#[derive(Debug, Default)]
pub(crate) struct StepMeter(Mutex<MeterState>);

#[derive(Debug, Default)]
struct MeterState {
    labels: HashMap<u64, StepCounter>,
    others: HashMap<Face, StepCounts>,
    waits: HashMap<(Face, WaitKind), WaitHistogram>,
}

impl StepMeter {
    /// Called by the writer after each commit.
    pub(crate) fn count(&self, steps: &StepTally) {
        if steps.is_empty() {
            return;
        }
        let mut state = self.state();
        for (key, steps) in steps.labels() {
            state.count(key, steps);
        }
        for waited in &steps.waits {
            let histogram = state.waits.entry((waited.face, waited.kind)).or_default();
            histogram.record(waited.us);
        }
    }

    pub(crate) fn figures(&self) -> StepFigures {
        let state = self.state();
        let mut labels: Vec<StepCounter> = state.labels.values().cloned().collect();
        let others = state.others.iter().map(|(face, counts)| StepCounter {
            face: *face,
            namespace: OTHER.to_owned(),
            goal: OTHER.to_owned(),
            counts: *counts,
        });
        let mut others: Vec<StepCounter> = others.collect();
        let waits = state.waits.iter();
        let mut waits: Vec<(Face, WaitKind, WaitHistogram)> = waits
            .map(|((face, kind), histogram)| (*face, *kind, histogram.clone()))
            .collect();
        drop(state);
        labels.sort_by(|one, other| {
            let key =
                |label: &StepCounter| (label.face, label.namespace.clone(), label.goal.clone());
            key(one).cmp(&key(other))
        });
        others.sort_by_key(|label| label.face);
        labels.extend(others);
        waits.sort_by_key(|(face, kind, _)| (*face, *kind));
        StepFigures { labels, waits }
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterState {
    fn count(&mut self, key: u64, steps: &LabelSteps) {
        if let Some(counter) = self.labels.get_mut(&key) {
            counter.counts.add(&steps.counts);
        } else if self.labels.len() < LABELS_MAX {
            let counter = StepCounter {
                face: steps.face,
                namespace: steps.namespace.clone(),
                goal: steps.goal.clone(),
                counts: steps.counts,
            };
            self.labels.insert(key, counter);
        } else {
            self.others
                .entry(steps.face)
                .or_default()
                .add(&steps.counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use consign_store::RowStepKind;

    use super::*;

    fn steps(goal: &str, counts: StepCounts) -> LabelSteps {
        LabelSteps {
            face: Face::Intent,
            namespace: "default".to_owned(),
            goal: goal.to_owned(),
            counts,
        }
    }

    #[test]
    fn labels_beyond_the_limit_share_one_counter_and_never_change_to_another() {
        let published = StepCounts::one(RowStepKind::Published);
        let mut state = MeterState::default();
        for round in 0..2 {
            for key in 0..=LABELS_MAX as u64 + 4 {
                state.count(key, &steps(&format!("goal-{key}"), published));
            }
            let others = &state.others[&Face::Intent];
            assert_eq!(others.of(RowStepKind::Published), 5 * (round + 1));
        }
        assert_eq!(state.labels.len(), LABELS_MAX);
        let meter = StepMeter(Mutex::new(state));
        let figures = meter.figures();
        assert_eq!(figures.labels.len(), LABELS_MAX + 1);
        assert_eq!(figures.labels.last().map(|label| &*label.goal), Some(OTHER));
        let sum = figures.of_face(Face::Intent).of(RowStepKind::Published);
        assert_eq!(sum, 2 * (LABELS_MAX as u64 + 5));
        assert_eq!(figures.of_face(Face::Beam), StepCounts::default());
    }

    #[test]
    fn a_wait_counts_in_its_bucket() {
        let mut histogram = WaitHistogram::default();
        for us in [-1, 5_000, 5_001, 7_200_000_000] {
            histogram.record(us);
        }
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        assert_eq!(buckets[..3], [(0.005, 2), (0.01, 1), (0.025, 0)]);
        assert_eq!(buckets.last(), Some(&(3600.0, 0)));
        assert_eq!(histogram.count, 4);
        assert_eq!(histogram.sum_us, 7_200_010_001);
    }
}
