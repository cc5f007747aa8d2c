//! Decides when one of several writers starts the next group: at once, or when the group is large enough for a transaction
//! beside another one.

use std::time::{Duration, Instant};

use super::queue::GROUP_REQUESTS_TARGET_MAX;

/// How long the next group waits for one in progress, which may be blocked by a lock.
pub(super) const TURN_MAX: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct TurnSchedule {
    /// The groups that writers execute and commit now: number and start time of each.
    in_progress: Vec<(usize, Instant)>,
    /// How many groups were started, and the sizes of the last ones.
    taken: usize,
    sizes: [usize; 4],
}

impl TurnSchedule {
    /// While a group is in progress, the next one grows to half the size of the recent ones, unless the group in progress is
    /// blocked. A transaction costs as much as a dozen requests, and answered clients return one after the other: a writer
    /// that started with the first of them would execute groups of one again and again.
    pub(super) fn should_start(&self, waiting: usize) -> bool {
        let largest = self.sizes.iter().max().copied().unwrap_or(0);
        let target = (largest / 2).clamp(1, GROUP_REQUESTS_TARGET_MAX);
        waiting >= target || self.pause().is_none()
    }

    /// How long the next group may wait for those in progress.
    pub(super) fn pause(&self) -> Option<Duration> {
        let left = |(_, taken_at): &(usize, Instant)| TURN_MAX.checked_sub(taken_at.elapsed());
        self.in_progress.iter().filter_map(left).max()
    }

    /// Notes that a group of this size is in progress until [`TurnSchedule::end`] is called with its number.
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
    fn a_group_beside_another_waits_for_half_the_recent_size() {
        let mut turns = after([3, 40, 1, 7]);
        assert!(turns.should_start(1), "nothing is in progress");
        let number = turns.take(9);
        assert!(!turns.should_start(1));
        assert!(!turns.should_start(19));
        assert!(turns.should_start(20), "half of the largest");
        turns.end(number);
        assert!(turns.should_start(1), "the group has ended");
    }

    #[test]
    fn old_group_sizes_are_forgotten() {
        let mut turns = after([40; 4]);
        for _ in 0..4 {
            let number = turns.take(2);
            turns.end(number);
        }
        turns.take(2);
        assert!(turns.should_start(1));
    }

    #[test]
    fn a_small_group_does_not_wait_for_another() {
        let mut turns = TurnSchedule::default();
        turns.take(1);
        assert!(turns.should_start(1));
    }

    #[test]
    fn a_blocked_group_does_not_block_the_next() {
        let mut turns = after([40; 4]);
        let stuck = turns.take(40);
        assert!(!turns.should_start(1));
        turns.in_progress[0].1 = Instant::now().checked_sub(TURN_MAX).unwrap();
        assert!(turns.should_start(1), "the wait is over");
        let next = turns.take(40);
        assert!(!turns.should_start(1), "this group is not blocked");
        turns.end(next);
        assert!(turns.should_start(1));
        turns.end(stuck);
        assert_eq!(turns.in_progress, []);
    }
}
