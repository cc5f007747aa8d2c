//! The schedule of a backend with one writer: the writer executes the next group while a second thread syncs the one
//! before it.

use std::sync::PoisonError;

use super::queue::{
    GROUP_REQUESTS_MAX, GROUP_REQUESTS_TARGET_MAX, GROUP_REQUESTS_TARGET_MIN, QueueState,
    QueuedRequest, WriteQueue,
};
use super::request_group::RequestGroup;
use super::retry::GroupOrigin;
use super::{CommittedGroup, SyncTarget};

/// What the sync thread does.
#[derive(Default)]
pub(super) enum SyncSlot {
    #[default]
    Idle,
    /// It was given a commit to make safe.
    Given(CommittedGroup),
    Syncing,
    /// The writer has ended, and nothing will be given any more.
    Stopped,
}

impl SyncSlot {
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Syncing)
    }
}

impl QueueState {
    /// Up to this many, a group that could be committed takes in who came meanwhile. Half of those who were on their way
    /// lately: so one half is made safe while the other is carried out, and nobody idles.
    fn target_group_size(&self) -> usize {
        let [last, before] = self.recent;
        usize::midpoint(last, before).clamp(GROUP_REQUESTS_TARGET_MIN, GROUP_REQUESTS_TARGET_MAX)
    }
}

impl WriteQueue {
    /// Waits for a request and takes all that are there. `None` when the submitter is closed and nothing waits.
    pub(crate) fn gather(&self) -> Option<RequestGroup<'_>> {
        let mut state = self.inner.state();
        loop {
            if let Some((requests, since)) = state.retries.next_part() {
                return Some(self.group(requests, GroupOrigin::Split { since }));
            }
            let requests = self.take(&mut state, Vec::new());
            if !requests.is_empty() {
                return Some(self.group(requests, GroupOrigin::Queue));
            }
            if !state.requests.is_empty() {
                // All that were taken have gone away; others wait behind them.
                continue;
            }
            if state.closed {
                return None;
            }
            state = self.inner.sleep(state);
        }
    }

    /// Takes what is there, without waiting.
    #[cfg(feature = "simulation")]
    pub(crate) fn gather_now(&self) -> Option<RequestGroup<'_>> {
        let mut state = self.inner.state();
        if let Some((requests, since)) = state.retries.next_part() {
            return Some(self.group(requests, GroupOrigin::Split { since }));
        }
        let requests = self.take(&mut state, Vec::new());
        (!requests.is_empty()).then(|| self.group(requests, GroupOrigin::Queue))
    }

    /// Adds those who came meanwhile, if it is open to them, and waits while the group cannot be committed. False when it
    /// can.
    pub(super) fn extend_group(&self, group: &mut Vec<QueuedRequest>, open: bool) -> bool {
        let mut state = self.inner.state();
        loop {
            let max = if !open {
                0
            } else if state.sync_slot.is_busy() {
                GROUP_REQUESTS_MAX
            } else {
                state.target_group_size()
            };
            let waiting = state.requests.len();
            if group.len() < max && waiting > 0 {
                *group = self.take(&mut state, std::mem::take(group));
                if state.requests.len() < waiting {
                    return true;
                }
            }
            if !state.sync_slot.is_busy() {
                return false;
            }
            state = self.inner.sleep(state);
        }
    }

    /// Makes a commit safe and answers it: in the other thread while the writer goes on, or here if that would be no
    /// help, which saves the hop.
    pub(crate) fn sync_and_answer(&self, committed: CommittedGroup, disk: &impl SyncTarget) {
        let mut state = self.inner.state();
        state.recent = [committed.answers.len(), state.recent[0]];
        if committed.is_light(state.requests.len()) {
            drop(state);
            let safe = committed.sync(disk, &self.shared);
            committed.answer(safe, &self.shared);
        } else {
            state.sync_slot = SyncSlot::Given(committed);
            // After the release, as in [`QueueInner::release`]. The other thread looks at `sync_slot` before it sleeps and after
            // every wake: a notification that arrives when it has the commit already finds nothing to do.
            drop(state);
            self.inner.syncer.notify_one();
        }
    }

    /// The writer gives no more commits to the other thread.
    pub(crate) fn stop_sync_thread(&self) {
        let mut state = self.inner.state();
        while state.sync_slot.is_busy() {
            state = self.inner.sleep(state);
        }
        state.sync_slot = SyncSlot::Stopped;
        drop(state);
        self.inner.syncer.notify_one();
    }

    /// The work of the other thread, until the writer has ended.
    pub(crate) fn run_sync_thread(&self, disk: &impl SyncTarget) {
        let mut state = self.inner.state();
        loop {
            match std::mem::take(&mut state.sync_slot) {
                SyncSlot::Given(committed) => {
                    state.sync_slot = SyncSlot::Syncing;
                    drop(state);
                    let safe = committed.sync(disk, &self.shared);
                    let mut freed = self.inner.state();
                    freed.sync_slot = SyncSlot::Idle;
                    let wake = freed.call_writer();
                    self.inner.release(freed, wake);
                    committed.answer(safe, &self.shared);
                    state = self.inner.state();
                }
                SyncSlot::Stopped => return,
                SyncSlot::Idle | SyncSlot::Syncing => {
                    state = self
                        .inner
                        .syncer
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_worth_a_commit_with_half_of_those_on_their_way() {
        let target = |recent| {
            let state = QueueState {
                recent,
                ..QueueState::default()
            };
            state.target_group_size()
        };
        assert_eq!(target([64, 0]), 32, "all in one group: it is split");
        assert_eq!(target([32, 32]), 32, "and stays so");
        assert_eq!(target([1, 0]), GROUP_REQUESTS_TARGET_MIN);
        assert_eq!(target([1_024, 1_024]), GROUP_REQUESTS_TARGET_MAX);
    }
}
