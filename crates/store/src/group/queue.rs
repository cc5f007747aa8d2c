//! The line before the writer: requests come in one by one and are taken all at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_kernel::command::{Command, Reply, Request};
use consign_kernel::limits;
use tokio::sync::oneshot;

use super::delivery::{PendingReplies, ReplySender, refuse};
use super::retry::{GroupOrigin, LOCK_SEARCH_MAX, LOCKED_TEXT, RetryQueue, halves};
use super::turns::{TURN_MAX, TurnSchedule};
use super::{CommitShared, CommittedGroup, SyncTarget};
use crate::Error;

/// Requests in one commit: more would only delay the first answer.
const GROUP_REQUESTS_MAX: usize = 1_024;
/// What a group may weigh, in intents or kilobytes: batches of large ones must not add up to a commit that takes seconds.
const GROUP_WEIGHT_MAX: usize = 8_192;
/// Bounds of what a group waits for ([`QueueState::target_group_size`], [`TurnSchedule::should_start`]): a commit costs as much as some requests, and
/// beyond many the first ones wait too long.
const GROUP_REQUESTS_TARGET_MIN: usize = 8;
pub(super) const GROUP_REQUESTS_TARGET_MAX: usize = 128;

pub(super) struct QueuedRequest {
    request: Request,
    pub(super) reply_to: ReplySender,
    weight: usize,
    /// Since when it is known to need what somebody else keeps locked.
    pub(super) lock_wait_since: Option<Instant>,
}

impl QueuedRequest {
    pub(super) fn new(request: Request, reply_to: ReplySender) -> Self {
        Self {
            weight: weight(&request),
            request,
            reply_to,
            lock_wait_since: None,
        }
    }
}

/// Roughly what a request costs: one for each intent and for each kilobyte. A claim may find as many in each of its lanes.
fn weight(request: &Request) -> usize {
    let steps = request.steps.iter().map(|step| {
        if let Command::Admit(admit) = step {
            let items = admit.items.iter();
            return items.map(|item| 1 + item.payload.len() / 1_024).sum();
        }
        if let Command::Claim(claim) = step {
            let max = claim.max.clamp(1, limits::CLAIM_BATCH_MAX) as usize;
            return (max * claim.lanes()).min(GROUP_WEIGHT_MAX);
        }
        1
    });
    steps.sum()
}

#[derive(Default)]
struct QueueState {
    requests: Vec<QueuedRequest>,
    /// Who was in a group that failed.
    retries: RetryQueue,
    closed: bool,
    turns: TurnSchedule,
    /// Writers that sleep, and want to know when something changes.
    asleep: usize,
    /// Those of them that were called and have not got up yet.
    ///
    /// Invariant: at most `asleep`, and at most the number of notifications that are decided and not sent yet plus the
    /// number of writers that have left the wait and have not counted themselves out yet. So where `called` equals
    /// `asleep` and is not zero, some writer will look at the state without another notification.
    called: usize,
    /// Those of them that get up by themselves, and then see whether whoever is under way is held up.
    timed_waiters: usize,
    sync_slot: SyncSlot,
    /// How many were in the last group and in the one before.
    recent: [usize; 2],
}

impl QueueState {
    fn should_start(&self) -> bool {
        self.turns.should_start(self.requests.len())
    }

    /// Calls one writer that sleeps and is not called yet.
    fn call_writer(&mut self) -> Wakeup {
        if self.asleep > self.called {
            self.called += 1;
            return Wakeup::One;
        }
        Wakeup::None
    }

    /// Calls a writer if requests are left in the queue.
    fn call_for_rest(&mut self) -> Wakeup {
        if self.requests.is_empty() {
            return Wakeup::None;
        }
        self.call_writer()
    }

    fn call_all(&mut self) -> Wakeup {
        self.called = self.asleep;
        Wakeup::All
    }

    /// Up to this many, a group that could be committed takes in who came meanwhile. Half of those who were on their way
    /// lately: so one half is made safe while the other is carried out, and nobody idles.
    fn target_group_size(&self) -> usize {
        let [last, before] = self.recent;
        usize::midpoint(last, before).clamp(GROUP_REQUESTS_TARGET_MIN, GROUP_REQUESTS_TARGET_MAX)
    }
}

/// What the thread sync_slot the writer does.
#[derive(Default)]
enum SyncSlot {
    #[default]
    Idle,
    /// It was given a commit to make safe.
    Given(CommittedGroup),
    Syncing,
    /// The writer has ended, and nothing will be given any more.
    Stopped,
}

impl SyncSlot {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Syncing)
    }
}

/// The notification that follows from a change of the state: decided and counted under the lock, sent after its release
/// ([`QueueInner::release`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Wakeup {
    None,
    One,
    All,
}

#[derive(Default)]
struct QueueInner {
    state: Mutex<QueueState>,
    writer: Condvar,
    syncer: Condvar,
}

impl QueueInner {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, then sends the notification: a thread that was woken under the lock would block on it at once.
    ///
    /// The notification may arrive late, when the writer it was meant for has got up by its own timeout, has looked and
    /// sleeps again, or when another writer sleeps. Each writer looks at the state after every wake, so a late
    /// notification costs one look and nothing else.
    fn release(&self, state: MutexGuard<'_, QueueState>, wake: Wakeup) {
        drop(state);
        match wake {
            Wakeup::None => {}
            Wakeup::One => self.writer.notify_one(),
            Wakeup::All => self.writer.notify_all(),
        }
    }

    fn sleep<'s>(&self, mut state: MutexGuard<'s, QueueState>) -> MutexGuard<'s, QueueState> {
        state.asleep += 1;
        let woken = self.writer.wait(state);
        Self::up(woken.unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, but not for longer than `pause`, and never longer than others may be held up unseen.
    fn wait_at_most<'s>(
        &self,
        mut state: MutexGuard<'s, QueueState>,
        pause: Duration,
    ) -> MutexGuard<'s, QueueState> {
        state.asleep += 1;
        state.timed_waiters += 1;
        let woken = self.writer.wait_timeout(state, pause.min(TURN_MAX));
        let mut state = Self::up(woken.unwrap_or_else(PoisonError::into_inner).0);
        state.timed_waiters -= 1;
        state
    }

    /// A writer that gets up counts itself out, called or not; a call that comes too late for it counts as answered,
    /// because the writer looks at the state now.
    fn up(mut state: MutexGuard<'_, QueueState>) -> MutexGuard<'_, QueueState> {
        state.asleep -= 1;
        state.called = state.called.saturating_sub(1).min(state.asleep);
        state
    }
}

/// Where requests come in.
pub(crate) struct Submitter {
    inner: Arc<QueueInner>,
    shared: Arc<CommitShared>,
    requests_max: usize,
}

/// Where the requests that wait are taken from.
#[derive(Clone)]
pub(crate) struct WriteQueue {
    inner: Arc<QueueInner>,
    shared: Arc<CommitShared>,
}

pub(crate) fn write_queue(
    requests_max: usize,
    shared: &Arc<CommitShared>,
) -> (Submitter, WriteQueue) {
    let inner = Arc::new(QueueInner::default());
    let queue = WriteQueue {
        inner: Arc::clone(&inner),
        shared: Arc::clone(shared),
    };
    let submitter = Submitter {
        inner,
        shared: Arc::clone(shared),
        requests_max,
    };
    (submitter, queue)
}

impl Submitter {
    pub(crate) async fn execute(&self, request: Request) -> Result<Reply, Error> {
        let (reply_to, answered) = oneshot::channel();
        self.enqueue(QueuedRequest::new(request, reply_to))?;
        answered.await.map_err(|_| Error::Closed)?.take()
    }

    fn enqueue(&self, queued: QueuedRequest) -> Result<(), Error> {
        self.shared.durability.confirm()?;
        let mut state = self.inner.state();
        if state.closed {
            return Err(Error::Closed);
        }
        if state.requests.len() + state.retries.lock_waiters() >= self.requests_max {
            return Err(Error::Busy);
        }
        state.requests.push(queued);
        self.shared.meters.waiting.fetch_add(1, Ordering::Relaxed);
        // Somebody has to see when whoever is under way is held up.
        let unseen = state.requests.len() == 1 && state.timed_waiters == 0;
        let wake = if unseen || state.should_start() {
            state.call_writer()
        } else {
            Wakeup::None
        };
        self.inner.release(state, wake);
        Ok(())
    }

    /// What waits is still answered; later requests are refused.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state();
        state.closed = true;
        let wake = state.call_all();
        self.inner.release(state, wake);
    }
}

/// A writer that carries out and commits a group.
pub(crate) struct GroupTurn<'l> {
    queue: &'l WriteQueue,
    /// `None` while it tries those who wait for a lock. Others never wait for it.
    number: Option<usize>,
}

impl Drop for GroupTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.inner.state();
        match self.number {
            // Those who waited for it are taken by this writer, which looks for more now, or by one that naps.
            Some(number) => state.turns.end(number),
            None => state.retries.end_attempt(),
        }
    }
}

/// When a request came to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// With the one before it.
    Together,
    /// Some time may have passed since the one before it.
    Later,
}

/// What shall commit together.
pub(crate) struct RequestGroup<'l> {
    queue: &'l WriteQueue,
    requests: Vec<QueuedRequest>,
    replies: Vec<Reply>,
    origin: GroupOrigin,
}

impl RequestGroup<'_> {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Carries out every request of the group, and those that still come while the group before it is made safe.
    pub(crate) fn run_each(
        &mut self,
        mut run: impl FnMut(&Request, Arrival) -> Result<Reply, Error>,
    ) -> Result<(), Error> {
        let mut came = Arrival::Together;
        loop {
            while let Some(queued) = self.requests.get(self.replies.len()) {
                self.replies.push(run(&queued.request, came)?);
                came = Arrival::Together;
            }
            came = Arrival::Later;
            let open = self.origin == GroupOrigin::Queue;
            if !self.queue.extend_group(&mut self.requests, open) {
                return Ok(());
            }
        }
    }

    /// Whether it is a part of one that failed: it shall not wait long for anything, lest it fails slowly again.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.origin, GroupOrigin::Split { .. })
    }

    /// Puts aside those who would only wait for a lock, and goes on with the others. Whoever waited already has its try.
    pub(crate) fn without_locked(mut self, is_locked: impl Fn(&Request) -> bool) -> Option<Self> {
        if self.origin != GroupOrigin::LockWait {
            let requests = std::mem::take(&mut self.requests);
            let (stuck, free) = requests
                .into_iter()
                .partition(|queued| is_locked(&queued.request));
            self.requests = free;
            self.queue.wait_for_lock(stuck);
        }
        (!self.requests.is_empty()).then_some(self)
    }

    /// Both halves are carried out for themselves, so that whoever is to blame is alone in the end.
    pub(super) fn split(self) {
        let since = self.since();
        self.queue.retry_parts(halves(self.requests), since);
    }

    /// Somebody else holds a lock. Those who are known to need it wait apart, and the others go on. If nobody is known,
    /// whoever needs it is looked for in ever smaller parts, but not for long: it may be all of them.
    pub(super) fn defer_locked(self, is_locked: &[bool]) {
        let since = self.since();
        let mut is_locked = is_locked.iter();
        let is_waiter = |_: &QueuedRequest| is_locked.next() == Some(&true);
        let (mut stuck, free): (Vec<_>, Vec<_>) = self.requests.into_iter().partition(is_waiter);
        if !stuck.is_empty() {
            self.queue.retry_parts([free, Vec::new()], since);
        } else if free.len() > 1 && since.elapsed() < LOCK_SEARCH_MAX {
            self.queue.retry_parts(halves(free), since);
        } else {
            stuck = free;
        }
        self.queue.wait_for_lock(stuck);
    }

    /// When the group failed of which this is a part, or else now.
    fn since(&self) -> Instant {
        match self.origin {
            GroupOrigin::Split { since } => since,
            GroupOrigin::Queue | GroupOrigin::LockWait => Instant::now(),
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().map(|queued| &queued.request)
    }

    /// The answers to all requests, in their order.
    pub(crate) fn answer_with(&mut self, replies: Vec<Reply>) {
        self.replies = replies;
    }

    /// Those who asked, each with its answer if it came to that.
    pub(super) fn take_answers(&mut self) -> PendingReplies {
        let mut replies = self.replies.drain(..);
        self.requests
            .drain(..)
            .map(|queued| (queued.reply_to, replies.next()))
            .collect()
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

    /// The same for one of several writers, in turn: see [`TurnSchedule::should_start`].
    pub(crate) fn gather_in_turn(&self) -> Option<(RequestGroup<'_>, GroupTurn<'_>)> {
        let mut state = self.inner.state();
        loop {
            if let Some(taken) = self.take_retry(&mut state) {
                // The writer that was called for these has something else to do now.
                let wake = state.call_for_rest();
                self.inner.release(state, wake);
                return Some(taken);
            }
            if state.requests.is_empty() {
                if state.closed && !state.retries.needs_writer() {
                    return None;
                }
                let pauses = [state.retries.pause(), state.turns.pause()];
                state = match pauses.into_iter().flatten().min() {
                    Some(pause) => self.inner.wait_at_most(state, pause),
                    None => self.inner.sleep(state),
                };
            } else if state.should_start() {
                let requests = self.take(&mut state, Vec::new());
                if !requests.is_empty() {
                    let running = self.turn(&mut state, requests.len());
                    // More than one group takes: another writer shall know of them.
                    let wake = state.call_for_rest();
                    self.inner.release(state, wake);
                    return Some((self.group(requests, GroupOrigin::Queue), running));
                }
            } else if let Some(pause) = state.turns.pause() {
                state = self.inner.wait_at_most(state, pause);
            }
        }
    }

    /// Who was in a group that failed goes first.
    fn take_retry(&self, state: &mut QueueState) -> Option<(RequestGroup<'_>, GroupTurn<'_>)> {
        if let Some((requests, since)) = state.retries.next_part() {
            let running = self.turn(state, requests.len());
            return Some((self.group(requests, GroupOrigin::Split { since }), running));
        }
        let requests = state
            .retries
            .next_lock_waiters(GROUP_REQUESTS_MAX, state.closed)?;
        let running = GroupTurn {
            queue: self,
            number: None,
        };
        Some((self.group(requests, GroupOrigin::LockWait), running))
    }

    fn retry_parts(&self, parts: [Vec<QueuedRequest>; 2], since: Instant) {
        self.inner.state().retries.add(parts, since);
    }

    fn wait_for_lock(&self, requests: Vec<QueuedRequest>) {
        if requests.is_empty() {
            return;
        }
        let mut state = self.inner.state();
        let closed = state.closed;
        let refused = state.retries.wait_for_lock(requests, closed);
        drop(state);
        if !refused.is_empty() {
            self.shared.meters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(requests = refused.len(), "{LOCKED_TEXT}");
            let answers = refused.into_iter().map(|queued| (queued.reply_to, None));
            refuse(answers.collect(), || {
                Error::Unavailable(LOCKED_TEXT.to_owned())
            });
        }
    }

    fn turn(&self, state: &mut QueueState, size: usize) -> GroupTurn<'_> {
        GroupTurn {
            queue: self,
            number: Some(state.turns.take(size)),
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

    fn group(&self, requests: Vec<QueuedRequest>, origin: GroupOrigin) -> RequestGroup<'_> {
        let replies = Vec::with_capacity(requests.len());
        RequestGroup {
            queue: self,
            requests,
            replies,
            origin,
        }
    }

    /// Adds those who came meanwhile, if it is open to them, and waits while the group cannot be committed. False when it
    /// can.
    fn extend_group(&self, group: &mut Vec<QueuedRequest>, open: bool) -> bool {
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

    fn take(&self, state: &mut QueueState, mut group: Vec<QueuedRequest>) -> Vec<QueuedRequest> {
        let mut weight: usize = group.iter().map(|queued| queued.weight).sum();
        let mut count = 0;
        for queued in state.requests.iter().take(GROUP_REQUESTS_MAX - group.len()) {
            weight += queued.weight;
            // Whatever it weighs, the first one goes.
            if weight > GROUP_WEIGHT_MAX && group.len() + count > 0 {
                break;
            }
            count += 1;
        }
        // A request whose caller went away before its turn would only do work nobody sees answered.
        let taken = state.requests.drain(..count);
        group.extend(taken.filter(|queued| !queued.reply_to.is_closed()));
        let meters = &self.shared.meters;
        meters.waiting.fetch_sub(count as u64, Ordering::Relaxed);
        meters.requests.fetch_add(count as u64, Ordering::Relaxed);
        group
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

    /// Runs one of the two threads. Should it end by a panic, nobody waits for it: nothing is accepted any more.
    pub(crate) fn poison_on_panic(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_ok() {
            return;
        }
        tracing::error!(
            "a thread of the ledger ended by a panic; nothing more is accepted until a new start"
        );
        self.shared.durability.mark_lost();
        let mut state = self.inner.state();
        state.closed = true;
        let unanswered = (
            std::mem::take(&mut state.requests),
            std::mem::take(&mut state.retries),
        );
        if state.sync_slot.is_busy() {
            state.sync_slot = SyncSlot::Idle;
        }
        let wake = state.call_all();
        self.inner.release(state, wake);
        drop(unanswered);
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
    use consign_kernel::command::{Audience, Claim};
    use consign_kernel::profile::Face;

    use super::*;

    #[test]
    fn a_claim_weighs_what_it_may_find_in_all_its_lanes() {
        let weighed = |max, worker_id: Option<&str>, capabilities| {
            let claim = Claim {
                face: Face::Intent,
                namespace: "default".to_owned(),
                goal: None,
                holder: "alice".to_owned(),
                audience: Audience::Caller,
                worker_id: worker_id.map(str::to_owned),
                capabilities: vec!["c".to_owned(); capabilities],
                max,
                lease_us: 1,
            };
            assert_eq!(claim.lanes(), claim.probes().len());
            weight(&Request {
                gate: None,
                steps: vec![Command::Claim(claim)],
                apart: consign_kernel::command::Apart::Yes,
                seed: [0; 32],
            })
        };
        assert_eq!(weighed(1, None, 0), 2, "one's own, and public ones");
        assert_eq!(weighed(0, None, 0), 2, "it takes one all the same");
        assert_eq!(weighed(10, Some("w"), 4), 10 * 2 * 5 * 2);
        assert_eq!(weighed(u32::MAX, None, 0), 200);
        assert_eq!(weighed(100, Some("w"), 32), GROUP_WEIGHT_MAX);
    }

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

    #[test]
    fn a_writer_that_sleeps_hears_of_the_first_who_waits_for_one_under_way() {
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = write_queue(8, &shared);
        let (taken, was_taken) = std::sync::mpsc::channel();
        let writer = queue.clone();
        let writer = std::thread::spawn(move || {
            let group = writer.gather_in_turn().map(|(group, _)| group.len());
            taken.send((group, Instant::now())).unwrap();
        });
        while queue.inner.state().asleep == 0 {
            std::thread::yield_now();
        }
        // Another one takes a large group meanwhile, and is held up.
        queue.inner.state().turns.take(40);
        let began = Instant::now();
        let (reply_to, _answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            apart: consign_kernel::command::Apart::Yes,
            seed: [0; 32],
        };
        submitter
            .enqueue(QueuedRequest::new(request, reply_to))
            .unwrap();
        let (group, at) = was_taken.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(group, Some(1));
        assert!(at - began >= TURN_MAX / 2, "it waited for the other first");
        writer.join().unwrap();
    }

    fn empty_request() -> (
        QueuedRequest,
        oneshot::Receiver<crate::group::delivery::Delivery>,
    ) {
        let (reply_to, answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            apart: consign_kernel::command::Apart::Yes,
            seed: [0; 32],
        };
        (QueuedRequest::new(request, reply_to), answered)
    }

    #[test]
    fn a_notification_that_arrives_late_is_harmless() {
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = write_queue(8, &shared);
        let writer = std::thread::spawn({
            let queue = queue.clone();
            move || {
                let mut sizes = Vec::new();
                while let Some(group) = queue.gather() {
                    sizes.push(group.len());
                }
                sizes
            }
        });
        let asleep = || {
            while queue.inner.state().asleep == 0 {
                std::thread::yield_now();
            }
        };
        asleep();
        // Decided and counted, and not sent before the writer has worked and sleeps again.
        let mut state = queue.inner.state();
        let late = state.call_writer();
        assert_eq!(late, Wakeup::One);
        assert_eq!(state.call_writer(), Wakeup::None, "it is called already");
        let (queued, _answered) = empty_request();
        state.requests.push(queued);
        drop(state);
        queue.inner.writer.notify_one();
        while !queue.inner.state().requests.is_empty() {
            std::thread::yield_now();
        }
        asleep();
        queue.inner.release(queue.inner.state(), late);
        let (queued, _answered) = empty_request();
        submitter.enqueue(queued).unwrap();
        while !queue.inner.state().requests.is_empty() {
            std::thread::yield_now();
        }
        asleep();
        assert_eq!(queue.inner.state().called, 0);
        submitter.close();
        assert_eq!(writer.join().unwrap(), [1, 1]);
    }

    #[test]
    fn every_request_is_taken_however_many_threads_submit_and_gather() {
        const EACH: usize = 2_000;
        let shared = Arc::new(CommitShared::default());
        let (submitter, queue) = write_queue(usize::MAX, &shared);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some((group, _running)) = queue.gather_in_turn() {
                        taken.fetch_add(group.len(), Ordering::Relaxed);
                    }
                });
            }
            let submitters = [(); 2].map(|()| {
                scope.spawn(|| {
                    let requests = (0..EACH).map(|_| {
                        let (queued, answered) = empty_request();
                        submitter.enqueue(queued).unwrap();
                        answered
                    });
                    requests.collect::<Vec<_>>()
                })
            });
            let answers = submitters.map(|submitter| submitter.join().unwrap());
            let deadline = Instant::now() + Duration::from_secs(10);
            while taken.load(Ordering::Relaxed) < 2 * EACH && Instant::now() < deadline {
                std::thread::yield_now();
            }
            drop(answers);
            submitter.close();
        });
        assert_eq!(taken.into_inner(), 2 * EACH);
    }
}
