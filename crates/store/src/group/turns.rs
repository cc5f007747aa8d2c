//! When one of several writers begins the next group: at once, or when it is target a transaction beside another.

use std::time::{Duration, Instant};

use super::queue::GROUP_REQUESTS_TARGET_MAX;

/// How long the next group waits for one that is under way: it may be held up by a lock.
pub(super) const TURN_MAX: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct TurnSchedule {
    /// What several writers carry out and commit at the moment: the number of each group, and when it was taken.
    in_progress: Vec<(usize, Instant)>,
    /// How many groups were taken, and how many requests were in the last of them.
    taken: usize,
    sizes: [usize; 4],
}

impl TurnSchedule {
    /// While a group is under way the next one grows until it is half as large as those of before, unless the one under
    /// way is held up. A transaction costs as much as a dozen requests, and whoever was answered comes back one after the
    /// other: a writer that began with the first of them would carry out groups of one again and again.
    pub(super) fn should_start(&self, waiting: usize) -> bool {
        let largest = self.sizes.iter().max().copied().unwrap_or(0);
        let target = (largest / 2).clamp(1, GROUP_REQUESTS_TARGET_MAX);
        waiting >= target || self.pause().is_none()
    }

    /// How long the next group may wait for those under way.
    pub(super) fn pause(&self) -> Option<Duration> {
        let left = |(_, taken_at): &(usize, Instant)| TURN_MAX.checked_sub(taken_at.elapsed());
        self.in_progress.iter().filter_map(left).max()
    }

    /// A group of this size is under way, until [`TurnSchedule::end`] is told its number.
    pub(super) fn take(&mut self, size: usize) -> usize {
        let number = self.taken;
        self.taken += 1;
        self.sizes[number % self.sizes.len()] = size;
        self.in_progress.push((number, Instant::now()));
        number
    }

    pub(super) fn end(&mut self, number: usize) {
        self.in_progress.retain(|(other, _)| *other != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sizes: [usize; 4]) -> TurnSchedule {
        TurnSchedule {
            sizes,
            ..TurnSchedule::default()
        }
    }

    #[test]
    fn a_group_beside_another_is_half_as_large_as_those_of_before() {
        let mut turns = after([3, 40, 1, 7]);
        assert!(turns.should_start(1), "nothing is under way");
        let number = turns.take(9);
        assert!(!turns.should_start(1));
        assert!(!turns.should_start(19));
        assert!(turns.should_start(20), "half of the largest");
        turns.end(number);
        assert!(turns.should_start(1), "it has ended");
    }

    #[test]
    fn what_is_long_past_counts_no_more() {
        let mut turns = after([40; 4]);
        for _ in 0..4 {
            let number = turns.take(2);
            turns.end(number);
        }
        turns.take(2);
        assert!(turns.should_start(1));
    }

    #[test]
    fn where_few_come_nobody_waits_for_another() {
        let mut turns = TurnSchedule::default();
        turns.take(1);
        assert!(turns.should_start(1));
    }

    #[test]
    fn who_is_held_up_holds_up_nobody_else() {
        let mut turns = after([40; 4]);
        let stuck = turns.take(40);
        assert!(!turns.should_start(1));
        turns.in_progress[0].1 = Instant::now().checked_sub(TURN_MAX).unwrap();
        assert!(turns.should_start(1), "it was waited for long enough");
        let next = turns.take(40);
        assert!(!turns.should_start(1), "this one is not held up");
        turns.end(next);
        assert!(turns.should_start(1));
        turns.end(stuck);
        assert_eq!(turns.in_progress, []);
    }
}
