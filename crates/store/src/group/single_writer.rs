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
    /// A commit waits for its sync.
    Given(CommittedGroup),
    Syncing,
    /// The writer has ended; no more commits follow.
    Stopped,
}

impl SyncSlot {
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Syncing)
    }
}

impl QueueState {
    /// Up to this size, a group that could be committed takes in new requests. Half of the requests in recent groups: so one
    /// half is synced while the other is executed, and neither thread idles.
    fn target_group_size(&self) -> usize {
        let [last, before] = self.recent;
        usize::midpoint(last, before).clamp(GROUP_REQUESTS_TARGET_MIN, GROUP_REQUESTS_TARGET_MAX)
    }
}

impl WriteQueue {
    /// Waits for a request and takes all that are queued. `None` when the queue is closed and empty.
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
                // The callers of all taken requests are gone; more requests are queued.
                continue;
            }
            if state.closed {
                return None;
            }
            state = self.inner.sleep(state);
        }
    }

    /// Takes what is queued, without waiting.
    #[cfg(feature = "simulation")]
    pub(crate) fn gather_now(&self) -> Option<RequestGroup<'_>> {
        let mut state = self.inner.state();
        if let Some((requests, since)) = state.retries.next_part() {
            return Some(self.group(requests, GroupOrigin::Split { since }));
        }
        let requests = self.take(&mut state, Vec::new());
        (!requests.is_empty()).then(|| self.group(requests, GroupOrigin::Queue))
    }

    /// Adds new requests, if the group is open, and waits while the group cannot be committed. False when it can.
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

    /// Syncs a commit and answers it: in the sync thread while the writer continues, or in this thread if the sync thread
    /// would not help, which saves a switch.
    pub(crate) fn sync_and_answer(&self, committed: CommittedGroup, disk: &impl SyncTarget) {
        let mut state = self.inner.state();
        state.recent = [committed.answers.len(), state.recent[0]];
        if committed.is_light(state.requests.len()) {
            drop(state);
            let safe = committed.sync(disk, &self.shared);
            committed.answer(safe, &self.shared);
        } else {
            state.sync_slot = SyncSlot::Given(committed);
            // After the release, as in [`QueueInner::release`]. The sync thread checks `sync_slot` before it waits and after
            // every wake: a notification that arrives when it has taken the commit already has no effect.
            drop(state);
            self.inner.syncer.notify_one();
        }
    }

    /// Ends the sync thread after its last commit.
    pub(crate) fn stop_sync_thread(&self) {
        let mut state = self.inner.state();
        while state.sync_slot.is_busy() {
            state = self.inner.sleep(state);
        }
        state.sync_slot = SyncSlot::Stopped;
        drop(state);
        self.inner.syncer.notify_one();
    }

    /// The loop of the sync thread, until the writer has ended.
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
    fn a_group_grows_to_half_of_the_recent_requests() {
        let target = |recent| {
            let state = QueueState {
                recent,
                ..QueueState::default()
            };
            state.target_group_size()
        };
        assert_eq!(target([64, 0]), 32, "all in one group: it is halved");
        assert_eq!(target([32, 32]), 32, "and stays at that size");
        assert_eq!(target([1, 0]), GROUP_REQUESTS_TARGET_MIN);
        assert_eq!(target([1_024, 1_024]), GROUP_REQUESTS_TARGET_MAX);
    }
}
