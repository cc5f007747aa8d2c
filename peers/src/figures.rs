//! Medians with their spread, and ratios taken round by round.
//!
//! A ratio is formed inside one round, where both sides saw the same machine, and only then the median is taken: the
//! ratio of two medians could compare a quiet minute with a busy one.

use serde::Serialize;

/// The median of some measurements, with the least and the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without measurements.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[upper - 1], sorted[upper])
        } else {
            sorted[upper]
        };
        Some(Self { median, min, max })
    }

    /// Of `ours` by `theirs`, for the rounds in which both were measured.
    pub(crate) fn of_ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Self> {
        let rounds = ours.iter().zip(theirs);
        Self::of(rounds.filter_map(|(ours, theirs)| match (ours, theirs) {
            (Some(ours), Some(theirs)) if *theirs > 0.0 => Some(ours / theirs),
            _ => None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> (f64, f64, f64) {
        let spread = Spread::of(values.iter().copied()).unwrap();
        (spread.median, spread.min, spread.max)
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(spread(&[5.0]), (5.0, 5.0, 5.0));
        assert_eq!(spread(&[9.0, 1.0, 5.0]), (5.0, 1.0, 9.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]), (3.0, 1.0, 9.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // Both halve in the second round, so the ratio must not move, although medians of the two would.
        let ours = [Some(400.0), Some(200.0), Some(400.0)];
        let theirs = [Some(100.0), Some(50.0), None];
        let ratio = Spread::of_ratios(&ours, &theirs).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (4.0, 4.0, 4.0));
    }

    #[test]
    fn a_round_without_a_figure_gives_no_ratio() {
        assert_eq!(Spread::of_ratios(&[None], &[Some(1.0)]), None);
        assert_eq!(Spread::of_ratios(&[Some(1.0)], &[Some(0.0)]), None);
    }
}
