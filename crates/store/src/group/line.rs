//! The line before the writer: requests come in one by one and are taken all at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_kernel::command::{Command, Reply, Request};
use consign_kernel::limits;
use tokio::sync::oneshot;

use super::apart::{Apart, LOCKED, SEARCH_TIME, Whence, halves};
use super::delivery::{Answers, Asker, refuse};
use super::turns::{TURN_MAX, Turns};
use super::{Committed, Disk, Shared};
use crate::Error;

/// Requests in one commit: more would only delay the first answer.
const GROUP_REQUESTS_MAX: usize = 1_024;
/// What a group may weigh, in intents or kilobytes: batches of large ones must not add up to a commit that takes seconds.
const GROUP_WEIGHT_MAX: usize = 8_192;
/// Bounds of what a group waits for ([`State::worth`], [`Turns::is_time`]): a commit costs as much as some requests, and
/// beyond many the first ones wait too long.
const GROUP_REQUESTS_WORTH_MIN: usize = 8;
pub(super) const GROUP_REQUESTS_WORTH_MAX: usize = 128;

pub(super) struct Job {
    request: Request,
    pub(super) asker: Asker,
    weight: usize,
    /// Since when it is known to need what somebody else keeps locked.
    pub(super) stuck_since: Option<Instant>,
}

impl Job {
    pub(super) fn new(request: Request, asker: Asker) -> Self {
        Self {
            weight: weight(&request),
            request,
            asker,
            stuck_since: None,
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
struct State {
    jobs: Vec<Job>,
    /// Who was in a group that failed.
    apart: Apart,
    closed: bool,
    turns: Turns,
    /// Writers that sleep, and want to know when something changes.
    asleep: usize,
    /// Those of them that were called and have not got up yet.
    ///
    /// Invariant: at most `asleep`, and at most the number of notifications that are decided and not sent yet plus the
    /// number of writers that have left the wait and have not counted themselves out yet. So where `called` equals
    /// `asleep` and is not zero, some writer will look at the state without another notification.
    called: usize,
    /// Those of them that get up by themselves, and then see whether whoever is under way is held up.
    napping: usize,
    beside: Beside,
    /// How many were in the last group and in the one before.
    recent: [usize; 2],
}

impl State {
    fn is_time(&self) -> bool {
        self.turns.is_time(self.jobs.len())
    }

    /// Calls one writer that sleeps and is not called yet.
    fn call_writer(&mut self) -> Wake {
        if self.asleep > self.called {
            self.called += 1;
            return Wake::One;
        }
        Wake::None
    }

    /// Calls a writer if requests are left in the queue.
    fn call_for_rest(&mut self) -> Wake {
        if self.jobs.is_empty() {
            return Wake::None;
        }
        self.call_writer()
    }

    fn call_all(&mut self) -> Wake {
        self.called = self.asleep;
        Wake::All
    }

    /// Up to this many, a group that could be committed takes in who came meanwhile. Half of those who were on their way
    /// lately: so one half is made safe while the other is carried out, and nobody idles.
    fn worth(&self) -> usize {
        let [last, before] = self.recent;
        usize::midpoint(last, before).clamp(GROUP_REQUESTS_WORTH_MIN, GROUP_REQUESTS_WORTH_MAX)
    }
}

/// What the thread beside the writer does.
#[derive(Default)]
enum Beside {
    #[default]
    Idle,
    /// It was given a commit to make safe.
    Given(Committed),
    Syncing,
    /// The writer has ended, and nothing will be given any more.
    Unneeded,
}

impl Beside {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Syncing)
    }
}

/// The notification that follows from a change of the state: decided and counted under the lock, sent after its release
/// ([`Inner::release`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Wake {
    None,
    One,
    All,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    writer: Condvar,
    syncer: Condvar,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, then sends the notification: a thread that was woken under the lock would block on it at once.
    ///
    /// The notification may arrive late, when the writer it was meant for has got up by its own timeout, has looked and
    /// sleeps again, or when another writer sleeps. Each writer looks at the state after every wake, so a late
    /// notification costs one look and nothing else.
    fn release(&self, state: MutexGuard<'_, State>, wake: Wake) {
        drop(state);
        match wake {
            Wake::None => {}
            Wake::One => self.writer.notify_one(),
            Wake::All => self.writer.notify_all(),
        }
    }

    fn sleep<'s>(&self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.asleep += 1;
        let woken = self.writer.wait(state);
        Self::up(woken.unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, but not for longer than `pause`, and never longer than others may be held up unseen.
    fn nap<'s>(&self, mut state: MutexGuard<'s, State>, pause: Duration) -> MutexGuard<'s, State> {
        state.asleep += 1;
        state.napping += 1;
        let woken = self.writer.wait_timeout(state, pause.min(TURN_MAX));
        let mut state = Self::up(woken.unwrap_or_else(PoisonError::into_inner).0);
        state.napping -= 1;
        state
    }

    /// A writer that gets up counts itself out, called or not; a call that comes too late for it counts as answered,
    /// because the writer looks at the state now.
    fn up(mut state: MutexGuard<'_, State>) -> MutexGuard<'_, State> {
        state.asleep -= 1;
        state.called = state.called.saturating_sub(1).min(state.asleep);
        state
    }
}

/// Where requests come in.
pub(crate) struct Intake {
    line: Arc<Inner>,
    shared: Arc<Shared>,
    requests_max: usize,
}

/// Where the requests that wait are taken from.
#[derive(Clone)]
pub(crate) struct Line {
    line: Arc<Inner>,
    shared: Arc<Shared>,
}

pub(crate) fn line(requests_max: usize, shared: &Arc<Shared>) -> (Intake, Line) {
    let inner = Arc::new(Inner::default());
    let line = Line {
        line: Arc::clone(&inner),
        shared: Arc::clone(shared),
    };
    let intake = Intake {
        line: inner,
        shared: Arc::clone(shared),
        requests_max,
    };
    (intake, line)
}

impl Intake {
    pub(crate) async fn execute(&self, request: Request) -> Result<Reply, Error> {
        let (asker, answered) = oneshot::channel();
        self.enqueue(Job::new(request, asker))?;
        answered.await.map_err(|_| Error::Closed)?.take()
    }

    fn enqueue(&self, job: Job) -> Result<(), Error> {
        self.shared.safety.confirm()?;
        let mut state = self.line.state();
        if state.closed {
            return Err(Error::Closed);
        }
        if state.jobs.len() + state.apart.stuck() >= self.requests_max {
            return Err(Error::Busy);
        }
        state.jobs.push(job);
        self.shared.meters.waiting.fetch_add(1, Ordering::Relaxed);
        // Somebody has to see when whoever is under way is held up.
        let unseen = state.jobs.len() == 1 && state.napping == 0;
        let wake = if unseen || state.is_time() {
            state.call_writer()
        } else {
            Wake::None
        };
        self.line.release(state, wake);
        Ok(())
    }

    /// What waits is still answered; later requests are refused.
    pub(crate) fn close(&self) {
        let mut state = self.line.state();
        state.closed = true;
        let wake = state.call_all();
        self.line.release(state, wake);
    }
}

/// A writer that carries out and commits a group.
pub(crate) struct Running<'l> {
    line: &'l Line,
    /// `None` while it tries those who wait for a lock. Others never wait for it.
    number: Option<usize>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.line.line.state();
        match self.number {
            // Those who waited for it are taken by this writer, which looks for more now, or by one that naps.
            Some(number) => state.turns.end(number),
            None => state.apart.tried(),
        }
    }
}

/// When a request came to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// With the one before it.
    Together,
    /// Some time may have passed since the one before it.
    Later,
}

/// What shall commit together.
pub(crate) struct Group<'l> {
    line: &'l Line,
    jobs: Vec<Job>,
    replies: Vec<Reply>,
    whence: Whence,
}

impl Group<'_> {
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Carries out every request of the group, and those that still come while the group before it is made safe.
    pub(crate) fn each(
        &mut self,
        mut run: impl FnMut(&Request, Came) -> Result<Reply, Error>,
    ) -> Result<(), Error> {
        let mut came = Came::Together;
        loop {
            while let Some(job) = self.jobs.get(self.replies.len()) {
                self.replies.push(run(&job.request, came)?);
                came = Came::Together;
            }
            came = Came::Later;
            let open = self.whence == Whence::Line;
            if !self.line.more(&mut self.jobs, open) {
                return Ok(());
            }
        }
    }

    /// Whether it is a part of one that failed: it shall not wait long for anything, lest it fails slowly again.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.whence, Whence::Part { .. })
    }

    /// Puts aside those who would only wait for a lock, and goes on with the others. Whoever waited already has its try.
    pub(crate) fn without(mut self, locked_out: impl Fn(&Request) -> bool) -> Option<Self> {
        if self.whence != Whence::Stuck {
            let jobs = std::mem::take(&mut self.jobs);
            let (stuck, free) = jobs.into_iter().partition(|job| locked_out(&job.request));
            self.jobs = free;
            self.line.put_aside(stuck);
        }
        (!self.jobs.is_empty()).then_some(self)
    }

    /// Both halves are carried out for themselves, so that whoever is to blame is alone in the end.
    pub(super) fn divide(self) {
        let since = self.since();
        self.line.put_parts(halves(self.jobs), since);
    }

    /// Somebody else holds a lock. Those who are known to need it wait apart, and the others go on. If nobody is known,
    /// whoever needs it is looked for in ever smaller parts, but not for long: it may be all of them.
    pub(super) fn step_aside(self, locked_out: &[bool]) {
        let since = self.since();
        let mut locked_out = locked_out.iter();
        let locked = |_: &Job| locked_out.next() == Some(&true);
        let (mut stuck, free): (Vec<_>, Vec<_>) = self.jobs.into_iter().partition(locked);
        if !stuck.is_empty() {
            self.line.put_parts([free, Vec::new()], since);
        } else if free.len() > 1 && since.elapsed() < SEARCH_TIME {
            self.line.put_parts(halves(free), since);
        } else {
            stuck = free;
        }
        self.line.put_aside(stuck);
    }

    /// When the group failed of which this is a part, or else now.
    fn since(&self) -> Instant {
        match self.whence {
            Whence::Part { since } => since,
            Whence::Line | Whence::Stuck => Instant::now(),
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.jobs.iter().map(|job| &job.request)
    }

    /// The answers to all requests, in their order.
    pub(crate) fn answer_with(&mut self, replies: Vec<Reply>) {
        self.replies = replies;
    }

    /// Those who asked, each with its answer if it came to that.
    pub(super) fn take_answers(&mut self) -> Answers {
        let mut replies = self.replies.drain(..);
        self.jobs
            .drain(..)
            .map(|job| (job.asker, replies.next()))
            .collect()
    }
}

impl Line {
    /// Waits for a request and takes all that are there. `None` when the intake is closed and nothing waits.
    pub(crate) fn gather(&self) -> Option<Group<'_>> {
        let mut state = self.line.state();
        loop {
            if let Some((jobs, since)) = state.apart.next_part() {
                return Some(self.group(jobs, Whence::Part { since }));
            }
            let jobs = self.take(&mut state, Vec::new());
            if !jobs.is_empty() {
                return Some(self.group(jobs, Whence::Line));
            }
            if !state.jobs.is_empty() {
                // All that were taken have gone away; others wait behind them.
                continue;
            }
            if state.closed {
                return None;
            }
            state = self.line.sleep(state);
        }
    }

    /// The same for one of several writers, in turn: see [`Turns::is_time`].
    pub(crate) fn gather_in_turn(&self) -> Option<(Group<'_>, Running<'_>)> {
        let mut state = self.line.state();
        loop {
            if let Some(taken) = self.take_apart(&mut state) {
                // The writer that was called for these has something else to do now.
                let wake = state.call_for_rest();
                self.line.release(state, wake);
                return Some(taken);
            }
            if state.jobs.is_empty() {
                if state.closed && !state.apart.needs_somebody() {
                    return None;
                }
                let pauses = [state.apart.pause(), state.turns.pause()];
                state = match pauses.into_iter().flatten().min() {
                    Some(pause) => self.line.nap(state, pause),
                    None => self.line.sleep(state),
                };
            } else if state.is_time() {
                let jobs = self.take(&mut state, Vec::new());
                if !jobs.is_empty() {
                    let running = self.turn(&mut state, jobs.len());
                    // More than one group takes: another writer shall know of them.
                    let wake = state.call_for_rest();
                    self.line.release(state, wake);
                    return Some((self.group(jobs, Whence::Line), running));
                }
            } else if let Some(pause) = state.turns.pause() {
                state = self.line.nap(state, pause);
            }
        }
    }

    /// Who was in a group that failed goes first.
    fn take_apart(&self, state: &mut State) -> Option<(Group<'_>, Running<'_>)> {
        if let Some((jobs, since)) = state.apart.next_part() {
            let running = self.turn(state, jobs.len());
            return Some((self.group(jobs, Whence::Part { since }), running));
        }
        let jobs = state.apart.next_stuck(GROUP_REQUESTS_MAX, state.closed)?;
        let running = Running {
            line: self,
            number: None,
        };
        Some((self.group(jobs, Whence::Stuck), running))
    }

    fn put_parts(&self, parts: [Vec<Job>; 2], since: Instant) {
        self.line.state().apart.add(parts, since);
    }

    fn put_aside(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.line.state();
        let closed = state.closed;
        let refused = state.apart.put_aside(jobs, closed);
        drop(state);
        if !refused.is_empty() {
            self.shared.meters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(requests = refused.len(), "{LOCKED}");
            let answers = refused.into_iter().map(|job| (job.asker, None));
            refuse(answers.collect(), || Error::Unavailable(LOCKED.to_owned()));
        }
    }

    fn turn(&self, state: &mut State, size: usize) -> Running<'_> {
        Running {
            line: self,
            number: Some(state.turns.take(size)),
        }
    }

    /// Takes what is there, without waiting.
    #[cfg(feature = "simulation")]
    pub(crate) fn gather_now(&self) -> Option<Group<'_>> {
        let mut state = self.line.state();
        if let Some((jobs, since)) = state.apart.next_part() {
            return Some(self.group(jobs, Whence::Part { since }));
        }
        let jobs = self.take(&mut state, Vec::new());
        (!jobs.is_empty()).then(|| self.group(jobs, Whence::Line))
    }

    fn group(&self, jobs: Vec<Job>, whence: Whence) -> Group<'_> {
        let replies = Vec::with_capacity(jobs.len());
        Group {
            line: self,
            jobs,
            replies,
            whence,
        }
    }

    /// Adds those who came meanwhile, if it is open to them, and waits while the group cannot be committed. False when it
    /// can.
    fn more(&self, group: &mut Vec<Job>, open: bool) -> bool {
        let mut state = self.line.state();
        loop {
            let max = if !open {
                0
            } else if state.beside.is_busy() {
                GROUP_REQUESTS_MAX
            } else {
                state.worth()
            };
            let waiting = state.jobs.len();
            if group.len() < max && waiting > 0 {
                *group = self.take(&mut state, std::mem::take(group));
                if state.jobs.len() < waiting {
                    return true;
                }
            }
            if !state.beside.is_busy() {
                return false;
            }
            state = self.line.sleep(state);
        }
    }

    fn take(&self, state: &mut State, mut group: Vec<Job>) -> Vec<Job> {
        let mut weight: usize = group.iter().map(|job| job.weight).sum();
        let mut count = 0;
        for job in state.jobs.iter().take(GROUP_REQUESTS_MAX - group.len()) {
            weight += job.weight;
            // Whatever it weighs, the first one goes.
            if weight > GROUP_WEIGHT_MAX && group.len() + count > 0 {
                break;
            }
            count += 1;
        }
        // A request whose caller went away before its turn would only do work nobody sees answered.
        let taken = state.jobs.drain(..count);
        group.extend(taken.filter(|job| !job.asker.is_closed()));
        let meters = &self.shared.meters;
        meters.waiting.fetch_sub(count as u64, Ordering::Relaxed);
        meters.requests.fetch_add(count as u64, Ordering::Relaxed);
        group
    }

    /// Makes a commit safe and answers it: in the other thread while the writer goes on, or here if that would be no
    /// help, which saves the hop.
    pub(crate) fn make_safe(&self, committed: Committed, disk: &impl Disk) {
        let mut state = self.line.state();
        state.recent = [committed.answers.len(), state.recent[0]];
        if committed.is_light(state.jobs.len()) {
            drop(state);
            let safe = committed.sync(disk, &self.shared);
            committed.answer(safe, &self.shared);
        } else {
            state.beside = Beside::Given(committed);
            // After the release, as in [`Inner::release`]. The other thread looks at `beside` before it sleeps and after
            // every wake: a notification that arrives when it has the commit already finds nothing to do.
            drop(state);
            self.line.syncer.notify_one();
        }
    }

    /// Runs one of the two threads. Should it end by a panic, nobody waits for it: nothing is accepted any more.
    pub(crate) fn guarded(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_ok() {
            return;
        }
        tracing::error!(
            "a thread of the ledger ended by a panic; nothing more is accepted until a new start"
        );
        self.shared.safety.lost();
        let mut state = self.line.state();
        state.closed = true;
        let unanswered = (
            std::mem::take(&mut state.jobs),
            std::mem::take(&mut state.apart),
        );
        if state.beside.is_busy() {
            state.beside = Beside::Idle;
        }
        let wake = state.call_all();
        self.line.release(state, wake);
        drop(unanswered);
    }

    /// The writer gives no more commits to the other thread.
    pub(crate) fn end(&self) {
        let mut state = self.line.state();
        while state.beside.is_busy() {
            state = self.line.sleep(state);
        }
        state.beside = Beside::Unneeded;
        drop(state);
        self.line.syncer.notify_one();
    }

    /// The work of the other thread, until the writer has ended.
    pub(crate) fn sync_for_writer(&self, disk: &impl Disk) {
        let mut state = self.line.state();
        loop {
            match std::mem::take(&mut state.beside) {
                Beside::Given(committed) => {
                    state.beside = Beside::Syncing;
                    drop(state);
                    let safe = committed.sync(disk, &self.shared);
                    let mut freed = self.line.state();
                    freed.beside = Beside::Idle;
                    let wake = freed.call_writer();
                    self.line.release(freed, wake);
                    committed.answer(safe, &self.shared);
                    state = self.line.state();
                }
                Beside::Unneeded => return,
                Beside::Idle | Beside::Syncing => {
                    state = self
                        .line
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
        let worth = |recent| {
            let state = State {
                recent,
                ..State::default()
            };
            state.worth()
        };
        assert_eq!(worth([64, 0]), 32, "all in one group: it is split");
        assert_eq!(worth([32, 32]), 32, "and stays so");
        assert_eq!(worth([1, 0]), GROUP_REQUESTS_WORTH_MIN);
        assert_eq!(worth([1_024, 1_024]), GROUP_REQUESTS_WORTH_MAX);
    }

    #[test]
    fn a_writer_that_sleeps_hears_of_the_first_who_waits_for_one_under_way() {
        let shared = Arc::new(Shared::default());
        let (intake, line) = line(8, &shared);
        let (taken, was_taken) = std::sync::mpsc::channel();
        let writer = line.clone();
        let writer = std::thread::spawn(move || {
            let group = writer.gather_in_turn().map(|(group, _)| group.len());
            taken.send((group, Instant::now())).unwrap();
        });
        while line.line.state().asleep == 0 {
            std::thread::yield_now();
        }
        // Another one takes a large group meanwhile, and is held up.
        line.line.state().turns.take(40);
        let began = Instant::now();
        let (asker, _answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            apart: consign_kernel::command::Apart::Yes,
            seed: [0; 32],
        };
        intake.enqueue(Job::new(request, asker)).unwrap();
        let (group, at) = was_taken.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(group, Some(1));
        assert!(at - began >= TURN_MAX / 2, "it waited for the other first");
        writer.join().unwrap();
    }

    fn empty_job() -> (Job, oneshot::Receiver<crate::group::delivery::Delivery>) {
        let (asker, answered) = oneshot::channel();
        let request = Request {
            gate: None,
            steps: Vec::new(),
            apart: consign_kernel::command::Apart::Yes,
            seed: [0; 32],
        };
        (Job::new(request, asker), answered)
    }

    #[test]
    fn a_notification_that_arrives_late_is_harmless() {
        let shared = Arc::new(Shared::default());
        let (intake, line) = line(8, &shared);
        let writer = std::thread::spawn({
            let line = line.clone();
            move || {
                let mut sizes = Vec::new();
                while let Some(group) = line.gather() {
                    sizes.push(group.len());
                }
                sizes
            }
        });
        let asleep = || {
            while line.line.state().asleep == 0 {
                std::thread::yield_now();
            }
        };
        asleep();
        // Decided and counted, and not sent before the writer has worked and sleeps again.
        let mut state = line.line.state();
        let late = state.call_writer();
        assert_eq!(late, Wake::One);
        assert_eq!(state.call_writer(), Wake::None, "it is called already");
        let (job, _answered) = empty_job();
        state.jobs.push(job);
        drop(state);
        line.line.writer.notify_one();
        while !line.line.state().jobs.is_empty() {
            std::thread::yield_now();
        }
        asleep();
        line.line.release(line.line.state(), late);
        let (job, _answered) = empty_job();
        intake.enqueue(job).unwrap();
        while !line.line.state().jobs.is_empty() {
            std::thread::yield_now();
        }
        asleep();
        assert_eq!(line.line.state().called, 0);
        intake.close();
        assert_eq!(writer.join().unwrap(), [1, 1]);
    }

    #[test]
    fn every_request_is_taken_however_many_threads_submit_and_gather() {
        const EACH: usize = 2_000;
        let shared = Arc::new(Shared::default());
        let (intake, line) = line(usize::MAX, &shared);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some((group, _running)) = line.gather_in_turn() {
                        taken.fetch_add(group.len(), Ordering::Relaxed);
                    }
                });
            }
            let submitters = [(); 2].map(|()| {
                scope.spawn(|| {
                    let jobs = (0..EACH).map(|_| {
                        let (job, answered) = empty_job();
                        intake.enqueue(job).unwrap();
                        answered
                    });
                    jobs.collect::<Vec<_>>()
                })
            });
            let answers = submitters.map(|submitter| submitter.join().unwrap());
            let deadline = Instant::now() + Duration::from_secs(10);
            while taken.load(Ordering::Relaxed) < 2 * EACH && Instant::now() < deadline {
                std::thread::yield_now();
            }
            drop(answers);
            intake.close();
        });
        assert_eq!(taken.into_inner(), 2 * EACH);
    }
}
